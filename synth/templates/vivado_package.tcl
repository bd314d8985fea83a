# Vivado: package the unit as an IP core; its AXI4-Stream interfaces are found by their attributes.
# vivado -mode batch -source package.tcl
set part [expr {[llength $argv] > 0 ? [lindex $argv 0] : "{part}"}]
set here [file dirname [file normalize [info script]]]
set core [file join $here ip {package}]

create_project -in_memory -part $part
foreach name {{package_verilog}} {
    add_files -norecurse [file join $here rtl $name]
}
set_property top {package} [current_fileset]
update_compile_order -fileset sources_1
ipx::package_project -root_dir $core -vendor systola -library llm -taxonomy /UserIP \
    -import_files -force
set_property name {package} [ipx::current_core]
set_property version {version} [ipx::current_core]
set_property display_name {{top}} [ipx::current_core]
set_property description {{summary}} [ipx::current_core]
{interfaces}ipx::create_xgui_files [ipx::current_core]
ipx::update_checksums [ipx::current_core]
ipx::check_integrity [ipx::current_core]
ipx::save_core [ipx::current_core]

# DRC, extraction and GDS of a routed design by Magic, without a window.
set ::env(CAD_ROOT) "{magic}"
set argv [list -dnull -noconsole -T "{technology}"]
set argc [llength $argv]
# The path of Magic's library is compiled into its startup script.
set file [open "{magic}/magic/tcl/magic.tcl"]
set startup [read $file]
close $file
eval [string map [list /usr/lib/{machine}/magic "{magic}/magic"] $startup]
drc off
snap internal
lef read "{lef}"
def read routed.def
load {top}
select top cell
expand
drc euclidean on
drc check
drc catchup
foreach {rule boxes} [drc listall why] {
    puts "@@ drc [llength $boxes] $rule"
    foreach box $boxes { puts "@@ box $box" }
}
gds write {top}.gds
extract no all
extract all
ext2spice lvs
ext2spice -o extracted.spice
puts "@@ end"
exit

# The interfaces of the accelerator replace those that Vivado has inferred from the ports' names.
set package [ipx::current_core]
ipx::remove_all_bus_interface $package
ipx::remove_all_address_space $package
foreach map [ipx::get_memory_maps * -of_objects $package] {
    ipx::remove_memory_map [get_property name $map] $package
}

# Add an interface: `ports` has the logical and the physical name of each of its ports.
proc add_interface {name type mode ports parameters} {
    set interface [ipx::add_bus_interface $name [ipx::current_core]]
    set_property bus_type_vlnv xilinx.com:$type:1.0 $interface
    set_property abstraction_type_vlnv xilinx.com:${type}_rtl:1.0 $interface
    set_property interface_mode $mode $interface
    foreach {logical physical} $ports {
        set_property physical_name $physical [ipx::add_port_map $logical $interface]
    }
    foreach {parameter value} $parameters {
        set_property value $value [ipx::add_bus_parameter $parameter $interface]
    }
    return $interface
}

add_interface clk signal:clock slave {CLK clk} \
    {ASSOCIATED_BUSIF {interfaces} ASSOCIATED_RESET rst}
add_interface rst signal:reset slave {RST rst} {POLARITY ACTIVE_HIGH}
add_interface interrupt_request signal:interrupt master {INTERRUPT interrupt_request} \
    {SENSITIVITY LEVEL_HIGH}

# Masters: name, range of addresses, bits of a beat, ports, parameters.
foreach {name range width ports parameters} {
{masters}
} {
    set interface [add_interface $name interface:aximm master $ports $parameters]
    set space [ipx::add_address_space $name $package]
    set_property range $range $space
    set_property width $width $space
    set_property master_address_space_ref $name $interface
}

# Registers: name, offset, access, meaning, fields.
set interface [add_interface s_axi interface:aximm slave {
{slave}
} {PROTOCOL AXI4LITE}]
set block [ipx::add_address_block reg0 [ipx::add_memory_map s_axi $package]]
set_property base_address 0 $block
set_property range {register_bytes} $block
set_property width 32 $block
set_property usage register $block
set_property access read-write $block
set_property slave_memory_map_ref s_axi $interface
foreach {name offset access meaning fields} {
{registers}
} {
    set register [ipx::add_register $name $block]
    set_property address_offset $offset $register
    set_property size 32 $register
    set_property access $access $register
    set_property description $meaning $register
    foreach {part first bits allowed written use} $fields {
        set field [ipx::add_field $part $register]
        set_property bit_offset $first $field
        set_property bit_width $bits $field
        set_property access $allowed $field
        set_property description $use $field
        if {$written ne ""} {
            set_property modified_write_value $written $field
        }
    }
}

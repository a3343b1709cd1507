package main

import "context"

// floorBench is a goBench whose value has a floor; its baseline is only shown.
type floorBench struct {
	goBench
	floor float64
}

func (f floorBench) run(ctx context.Context) ([]result, error) {
	rs, err := f.goBench.run(ctx)
	for i := range rs {
		if f.floor > 0 {
			rs[i].Budget, rs[i].OK = f.floor, rs[i].Value >= f.floor
		}
	}
	return rs, err
}

// repairEntries measure repairs: built in, and through isolated plugins.
func repairEntries() []entry {
	var out []entry
	for _, f := range []floorBench{
		{goBench{name: "repair_builtin", what: "repair a batch of items by set@1.0.0, with all checks", pkg: "./transforms", bench: "RepairBuiltin",
			unit: "items/s", value: "RepairBuiltin/SetAvro"}, 200_000},
		{goBench{name: "repair_plugin_go", what: "repair 1.2 KiB invoices through an isolated plugin in Go, batches of 64, both sides on one core, beside the same code in this process",
			pkg: "./examples/plugin-go", bench: "RepairPlugin", unit: "items/core-s", value: "RepairPlugin/isolated", baseline: "RepairPlugin/in-process"}, 8000},
		{goBench{name: "repair_plugin_python", what: "repair 1.2 KiB invoices through an isolated plugin in Python, batches of 64", pkg: "./examples/plugin-python",
			bench: "RepairPlugin", unit: "items/s", value: "RepairPlugin/isolated"}, 0},
		{goBench{name: "repair_plugin_start", what: "start an isolated plugin in Go until it says what it is, and end it", pkg: "./examples/plugin-go", bench: "PluginStart",
			unit: "ms/start", value: "PluginStart", most: 150}, 0},
		{goBench{name: "repair_plugin_memory", what: "memory that the host keeps for a running plugin", pkg: "./examples/plugin-go", bench: "PluginMemory",
			unit: "MiB/plugin", value: "PluginMemory", most: 5}, 0},
	} {
		out = append(out, entry{names: []string{f.name}, run: f.run})
	}
	return out
}

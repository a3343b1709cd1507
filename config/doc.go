// Package config reads the files that people write: strictly, with every problem at once, each with its file, line, column,
// path and a suggestion. It is the only place that knows YAML.
//
// A file goes through Parse (syntax, aliases, duplicate keys, variables), Decode (defaults, then values, then Validate of
// each part) and the checks that need the whole file (CheckPipeline). Settings of a stage stand beside the stage: config
// decodes strictly into them (Node.Decode) and reflects their JSON Schema (Schema).
//
// Invariants: INV-CONFIG-BOUND a file costs bounded time and memory whatever it says; INV-CONFIG-VALUE a variable's value
// arrives byte for byte, is never expanded again and adds no key; INV-CONFIG-SECRET no value of a variable and no secret
// stands in a problem, a dump, a log or a digest.
package config

package redrive

import (
	"encoding/json"
	"strings"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/expr"
)

// measured adds up what the dry run measured of each item, by what became of it: name -> reconciled and all.
func measured(tx *ledger.Tx, digest pipeline.Digest, tenant string) (reconciled, all map[string]expr.Quantity, err error) {
	reconciled, all = map[string]expr.Quantity{}, map[string]expr.Quantity{}
	err = tx.Each("SELECT state, measures FROM manifest_items WHERE manifest = ? AND tenant = ? AND measures <> ''", []any{digest, tenant}, func(scan func(...any) error) error {
		var state, text string
		if err := scan(&state, &text); err != nil {
			return err
		}
		var of map[string]string
		if err := json.Unmarshal([]byte(text), &of); err != nil {
			return pipeline.Errorf(pipeline.CodeLedgerCorrupt, string(digest), "the measures of an item cannot be read")
		}
		for name, v := range of {
			q, ok := expr.ParseQuantity(v)
			if !ok {
				return pipeline.Errorf(pipeline.CodeLedgerCorrupt, string(digest), "the measures of an item cannot be read")
			}
			all[name] = all[name].Add(q)
			if state == itemReconciled {
				reconciled[name] = reconciled[name].Add(q)
			}
		}
		return nil
	})
	return reconciled, all, err
}

// sums compares what the items measure now with what was approved, and says how much of it is reconciled.
func sums(tx *ledger.Tx, row *manifestRow, m *Manifest) (text, mismatch string, err error) {
	if len(m.Measures) == 0 || row.dryRun == "" {
		return "", "", nil
	}
	report, err := parseReport(row.dryRun)
	if err != nil {
		return "", "", err
	}
	reconciled, all, err := measured(tx, row.Digest, row.Tenant)
	if err != nil {
		return "", "", err
	}
	var parts []string
	for _, x := range report.Measures {
		if got := all[x.Name].String(); got != x.Sum {
			return "", x.Name + " is " + got + " over the items and was " + x.Sum + " when it was approved", nil
		}
		parts = append(parts, x.Name+" "+reconciled[x.Name].String()+" of "+x.Sum)
	}
	return strings.Join(parts, ", "), "", nil
}

package redrive

import (
	"encoding/json"
	"strings"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/expr"
)

// totals are sums by the name of a measure.
type totals map[string]expr.Quantity

// add adds the measures of one item, as they are stored.
func (t totals) add(digest pipeline.Digest, text string) error {
	var of map[string]string
	if err := json.Unmarshal([]byte(text), &of); err != nil {
		return pipeline.Errorf(pipeline.CodeLedgerCorrupt, string(digest), "the measures of an item cannot be read")
	}
	for name, v := range of {
		q, ok := expr.ParseQuantity(v)
		if !ok {
			return pipeline.Errorf(pipeline.CodeLedgerCorrupt, string(digest), "the measures of an item cannot be read")
		}
		t[name] = t[name].Add(q)
	}
	return nil
}

// measured are the sums of a run: of all items as they were approved, of those that are reconciled, and, of those whose effect was
// measured by the answer about it, what their records say and what their effects say.
type measured struct {
	all, reconciled totals
	said, found     totals
	asked           int64
}

func measure(tx *ledger.Tx, digest pipeline.Digest, tenant string) (m measured, err error) {
	m = measured{totals{}, totals{}, totals{}, totals{}, 0}
	err = tx.Each("SELECT state, measures, effect FROM manifest_items WHERE manifest = ? AND tenant = ? AND measures <> ''", []any{digest, tenant}, func(scan func(...any) error) error {
		var state, text, effect string
		if err := scan(&state, &text, &effect); err != nil {
			return err
		}
		if err := m.all.add(digest, text); err != nil {
			return err
		}
		if state != itemReconciled {
			return nil
		}
		if effect != "" {
			m.asked++
			if err := m.said.add(digest, text); err != nil {
				return err
			}
			if err := m.found.add(digest, effect); err != nil {
				return err
			}
		}
		return m.reconciled.add(digest, text)
	})
	return m, err
}

// sums compares what the items measure now with what was approved, and their effects with them, and says how much of it is
// reconciled.
func sums(tx *ledger.Tx, row *manifestRow, m *Manifest) (text, mismatch string, err error) {
	if len(m.Measures) == 0 || row.dryRun == "" {
		return "", "", nil
	}
	report, err := parseReport(row.dryRun)
	if err != nil {
		return "", "", err
	}
	got, err := measure(tx, row.Digest, row.Tenant)
	if err != nil {
		return "", "", err
	}
	var parts []string
	for _, x := range report.Measures {
		if now := got.all[x.Name].String(); now != x.Sum {
			return "", x.Name + " is " + now + " over the items and was " + x.Sum + " when it was approved", nil
		}
		if found, ok := got.found[x.Name]; ok && found.String() != got.said[x.Name].String() {
			return "", x.Name + " of " + decimal(got.asked) + " effects is " + found.String() + ", and their records say " + got.said[x.Name].String(), nil
		}
		parts = append(parts, x.Name+" "+got.reconciled[x.Name].String()+" of "+x.Sum)
	}
	return strings.Join(parts, ", "), "", nil
}

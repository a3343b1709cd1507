package drill

import (
	"bufio"
	"database/sql"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
)

// provider is the running payment gateway.
type provider struct {
	t        *testing.T
	url      string
	database string
}

// startGateway builds the gateway and starts it over a database of its own.
func startGateway(t *testing.T, database string) *provider {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "gateway")
	if out, err := exec.Command("go", "build", "-o", path, "reprieve.dev/tests/drill/gateway").CombinedOutput(); err != nil {
		t.Fatalf("build the gateway: %v\n%s", err, out)
	}
	cmd := exec.Command(path, "-database", database)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may be gone already
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "listening ")
	if err != nil || !ok {
		t.Fatalf("the gateway did not start: %q %v", line, err)
	}
	return &provider{t, url, database}
}

func (p *provider) post(path string) {
	p.t.Helper()
	r, err := http.Post(p.url+path, "", nil)
	if err != nil {
		p.t.Fatal(err)
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		p.t.Fatalf("%s: %s", path, r.Status)
	}
}

// stats are what the gateway counted.
type stats struct {
	Calls    int64   `json:"calls"`
	Failures int64   `json:"failures"`
	Lost     int64   `json:"lost_answers"`
	Refused  int64   `json:"refused_invoices"`
	Answered int64   `json:"answered"`
	Slowest  float64 `json:"slowest_ms"`
	Broke    string  `json:"broke"`
}

func (p *provider) stats() (s stats) {
	p.t.Helper()
	r, err := http.Get(p.url + "/admin/stats")
	if err != nil {
		p.t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}

// debits are the debits of each token, read from its tables.
func (p *provider) debits() map[string]debit {
	p.t.Helper()
	db, err := sql.Open("pgx", p.database)
	if err != nil {
		p.t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.Query("SELECT d.idempotency_token, d.invoice_id, count(*), sum(d.amount_minor), count(DISTINCT i.idempotency_token) FROM debits d LEFT JOIN processed_invoices i USING (idempotency_token) GROUP BY 1, 2")
	if err != nil {
		p.t.Fatal(err)
	}
	defer rows.Close()
	out := map[string]debit{}
	for rows.Next() {
		var token string
		var d debit
		if err := rows.Scan(&token, &d.invoice, &d.times, &d.amount, &d.noted); err != nil {
			p.t.Fatal(err)
		}
		out[token] = d
	}
	if err := rows.Err(); err != nil {
		p.t.Fatal(err)
	}
	return out
}

type debit struct {
	invoice              string
	times, amount, noted int64
}

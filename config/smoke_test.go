package config

import ("testing";"os")

func TestSmoke(t *testing.T) {
	data,_ := os.ReadFile("testdata/pipeline.good.yaml")
	p, d, ps := LoadPipeline("p.yaml", data, Options{})
	if len(ps)>0 { t.Fatal(ps) }
	t.Logf("%+v", p)
	t.Log(d.Digest())
	t.Logf("%s", d.Dump())
	for _, f := range []string{"C55/bomb.yaml","C55/cycle.yaml","C55/fine.yaml","C58/config.yaml"} {
		data,_ := os.ReadFile("/work/shared/cases/"+f)
		_,_,ps := LoadPipeline(f, data, Options{})
		t.Log(ps.Error())
	}
	_,_,ps = LoadWorker("w", []byte("clusters: {main: {bootstrap.servers: x, sasl.password: hunter2}}\ncustody: {retention: 10d}\nledgers: {main: 'sqlite:x'}\n"), Options{})
	t.Log(ps)
}

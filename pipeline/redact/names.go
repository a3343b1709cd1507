package redact

import "bytes"

// meaning is what a name says about the value beside it.
type meaning uint8

const (
	means          meaning = iota // nothing
	meansCard                     // the number of a payment card
	meansCode                     // a card verification value
	meansAuth                     // the value of an Authorization header: scheme, then credentials
	meansCookie                   // the value of a cookie header
	meansSecret                   // a key, token or password
	meansMaybe                    // a query parameter that may be a credential
	meansReference                // an identifier that machines make: order, offset, trace, idempotency key
	meansTime                     // a time, offset, position or counter
	meansPhone                    // a telephone number
	meansPairName                 // a name itself: {"name": "cvv", "value": "123"}, ["Authorization", "..."]
	meansPairValue                // the value beside it
	meansKept                     // the file says that the detectors leave it alone
)

// maxName bounds how much of a name is looked at: its end, where the noun stands.
const maxName = 64

// nameWords is a name in words: "X-Api-Key", "xApiKey" and "x_api_key" are all {x, api, key}. It lives on the stack.
type nameWords struct {
	buf  [maxName]byte // lower case letters and digits, joined
	n    int
	ends [maxName / 2]uint8
	k    int
}

func (w *nameWords) split(name string) {
	if len(name) > maxName {
		name = name[len(name)-maxName:]
	}
	start := 0
	cut := func() {
		if w.n > start && w.k < len(w.ends) {
			w.ends[w.k] = uint8(w.n)
			w.k++
			start = w.n
		}
	}
	for i := 0; i < len(name); i++ {
		c := name[i]
		switch {
		case c >= 'A' && c <= 'Z':
			lowerBefore := i > 0 && (name[i-1] >= 'a' && name[i-1] <= 'z' || name[i-1] >= '0' && name[i-1] <= '9')
			lowerAfter := i+1 < len(name) && name[i+1] >= 'a' && name[i+1] <= 'z'
			upperBefore := i > 0 && name[i-1] >= 'A' && name[i-1] <= 'Z'
			if lowerBefore || upperBefore && lowerAfter {
				cut()
			}
			w.buf[w.n] = c + 'a' - 'A'
			w.n++
		case c >= 'a' && c <= 'z' || c >= '0' && c <= '9':
			w.buf[w.n] = c
			w.n++
		default:
			cut()
		}
	}
	cut()
}

func (w *nameWords) word(i int) []byte {
	from := 0
	if i > 0 {
		from = int(w.ends[i-1])
	}
	return w.buf[from:w.ends[i]]
}

func (w *nameWords) all() []byte { return w.buf[:w.n] }

func (w *nameWords) last() []byte {
	if w.k == 0 {
		return nil
	}
	return w.word(w.k - 1)
}

// nameMeaning reads a field, header or parameter name. query says that it stands in a URL's query or a form, where short
// names mean more. It allocates nothing.
func nameMeaning(name string, query bool) meaning {
	if name == "" {
		return means
	}
	var w nameWords
	w.split(name)
	if w.k == 0 {
		return means
	}
	all := w.all()
	if m := secretName(&w, all, query); m != means {
		return m
	}
	if codeName(&w, all) {
		return meansCode
	}
	return numberName(&w, all)
}

// secretName knows the names whose whole value is a credential.
func secretName(w *nameWords, all []byte, query bool) meaning {
	switch string(all) {
	case "authorization", "proxyauthorization", "xauthorization", "httpauthorization", "authorizationheader", "authheader",
		"xforwardedauthorization", "httpproxyauthorization", "xamzauthorization":
		return meansAuth
	case "cookie", "setcookie", "cookie2", "setcookie2", "httpcookie", "cookies", "httpsetcookie":
		return meansCookie
	case "sig", "signature", "token", "auth", "secret", "pwd", "pass", "jwt", "assertion", "clientassertion",
		"xamzsignature", "xamzcredential", "xgoogsignature", "hmac", "credential", "credentials":
		if query {
			return meansSecret
		}
	case "code", "key", "session", "sid", "ticket":
		if query {
			return meansMaybe
		}
	}
	switch string(all) {
	case "apikey", "accesskey", "xapikey", "xauthtoken", "authtoken", "accesstoken", "refreshtoken", "idtoken", "bearertoken", "sessiontoken",
		"clientsecret", "apisecret", "secretkey", "password", "passwd", "passphrase", "secretaccesskey", "privatekey",
		"xamzsecuritytoken", "securitytoken", "xgooggaikey", "apitoken", "xapitoken", "xaccesstoken", "xcsrftoken", "csrftoken",
		"xvaulttoken", "xauthkey", "authkey", "xfunctionskey", "ocpapimsubscriptionkey", "subscriptionkey", "authorizationtoken",
		"jwttoken", "jwt", "bearer", "oauthtoken", "sastoken", "xgitlabtoken", "privatetoken", "xauthenticationtoken",
		"authenticationtoken", "xamzsignature", "signingkey", "webhooksecret", "xapisecret", "appsecret", "userpassword",
		"dbpassword", "saslpassword", "basicauth", "passwords", "apikeys", "accesstokens", "accountkey", "sharedkey":
		return meansSecret
	}
	if w.k < 2 || about(w) {
		return means
	}
	last, before := w.last(), w.word(w.k-2)
	switch string(last) {
	case "key":
		switch string(before) {
		case "api", "access", "secret", "auth", "private", "signing", "subscription":
			return meansSecret
		}
	case "token":
		switch string(before) {
		case "access", "refresh", "auth", "bearer", "api", "session", "security", "jwt", "sas", "csrf", "authorization", "authentication", "oauth":
			return meansSecret
		case "id":
			if w.k == 2 || string(w.word(0)) == "oidc" {
				return meansSecret
			}
		}
	case "secret":
		switch string(before) {
		case "client", "api", "app", "webhook", "shared", "consumer", "oauth":
			return meansSecret
		}
	case "apikey", "accesstoken", "refreshtoken", "authtoken", "password", "passwd", "passphrase":
		return meansSecret
	case "authorization":
		switch string(before) {
		case "header", "headers", "http", "proxy", "x", "req", "request":
			return meansAuth
		}
	case "cookie":
		switch string(before) {
		case "set", "header", "headers", "request", "http", "session", "auth":
			return meansCookie
		}
	}
	return means
}

// codeName: cvv, cvc2, card_verification_value, ...; not cvv_result, cvc_check.
func codeName(w *nameWords, all []byte) bool {
	if about(w) {
		return false
	}
	for i := 0; i < w.k; i++ {
		if codeWord(w.word(i)) {
			return true
		}
	}
	switch string(all) {
	case "cardcode", "cardsecurity", "csccode", "cvcode", "cardpin2", "cardcid", "cccid", "amexcid":
		return true
	}
	return bytes.Contains(all, []byte("securitycode")) || bytes.Contains(all, []byte("cardverification")) ||
		bytes.Contains(all, []byte("verificationvalue")) || bytes.Contains(all, []byte("cardvalidationcode")) ||
		bytes.Contains(all, []byte("cardvalidationvalue")) || bytes.Contains(all, []byte("cardsecurityvalue")) ||
		bytes.Contains(all, []byte("cardidentificationnumber"))
}

// codeWord is one word that names a verification value, also joined to another: "cvv2", "cardcvc", "cvvcode".
func codeWord(b []byte) bool {
	switch string(b) {
	case "csc", "csc2", "cvn", "cvn2", "cvd", "cvd2", "cav", "cav2", "cve2":
		return true
	}
	var rest []byte
	switch {
	case bytes.HasPrefix(b, []byte("cvv")), bytes.HasPrefix(b, []byte("cvc")):
		rest = b[3:]
	case bytes.HasSuffix(b, []byte("cvv")), bytes.HasSuffix(b, []byte("cvc")), bytes.HasSuffix(b, []byte("cvv2")),
		bytes.HasSuffix(b, []byte("cvc2")):
		return true
	default:
		return false
	}
	if len(rest) > 0 && (rest[0] == '1' || rest[0] == '2') {
		rest = rest[1:]
	}
	switch string(rest) {
	case "", "code", "num", "number", "no", "nr", "value", "val", "field", "cvc", "cvc2", "csc", "cid":
		return true
	}
	return false
}

// about says that a name is about a thing and does not hold it: cvv_result, password_reset_at, token_type.
func about(w *nameWords) bool {
	for i := 0; i < w.k; i++ {
		switch string(w.word(i)) {
		case "result", "results", "check", "checked", "match", "matched", "matches", "status", "response", "resp", "required", "present", "provided",
			"verified", "valid", "invalid", "validated", "indicator", "ind", "enabled", "disabled", "policy", "length", "len", "attempts", "attempt",
			"error", "errors", "flag", "reason", "type", "count", "at", "time", "date", "missing", "supported", "failed", "failures",
			"passed", "outcome", "expires", "expiry", "ttl", "age", "hint", "url", "uri", "endpoint", "method", "mode", "presence", "entered",
			"collected", "requested", "decline", "declined", "message", "msg", "format", "regex", "rule", "score", "level", "is", "has",
			"id", "name", "scheme", "scope", "version", "changed", "updated", "reset", "retries", "rate", "limit", "masked", "hash", "digest",
			"fingerprint", "last4":
			return true
		}
	}
	return false
}

// numberName sorts the names of numbers.
func numberName(w *nameWords, all []byte) meaning {
	switch string(all) {
	case "cc", "ccnum", "ccnumber", "ccno", "pan", "fpan", "dpan", "card", "cardno", "cardnum", "cardnumber", "cardnr", "creditcard",
		"creditcardnumber", "creditcardno", "debitcard", "debitcardnumber", "primaryaccountnumber", "paymentcard", "cardpan", "pannumber", "ccn", "track2",
		"track1", "kartennummer", "numerocarte", "tarjeta":
		return meansCard
	}
	switch string(w.last()) {
	case "note", "notes", "comment", "comments", "description", "memo", "message", "body", "text", "reason", "remark", "remarks", "details",
		"payload", "data", "raw", "content", "title", "subject", "label", "free", "instructions":
		return means // whatever people type
	}
	var card, reference, clock, phone bool
	for i := 0; i < w.k; i++ {
		switch string(w.word(i)) {
		case "ts", "ms", "us", "ns", "at":
			clock = clock || i == w.k-1
		case "card", "cards", "pan", "pans", "cc", "ccnum", "ccn", "cardno", "cardnumber", "cardnum", "creditcard", "debitcard", "fpan", "dpan",
			"visa", "mastercard", "maestro", "amex", "tarjeta", "karte":
			card = true
		case "time", "times", "timestamp", "timestamps", "millis", "milliseconds", "micros", "microseconds", "nanos",
			"nanoseconds", "usec", "msec", "epoch", "date", "datetime", "created", "updated", "modified", "offset", "offsets", "lsn", "scn", "gtid", "xid",
			"seq", "seqno", "sequence", "sequencenumber", "position", "partition", "ticks", "hlc", "tso", "watermark", "since", "until",
			"deadline", "expires", "bytes", "size", "counter", "snowflake", "nonce":
			clock = true
		case "order", "orders", "orderno", "ordernumber", "orderid", "invoice", "invoices", "invoiceno", "invoicenumber", "invoiceid", "idempotency", "idempotent",
			"id", "ids", "uid", "oid", "pid", "gid", "tid", "uuid", "guid", "ulid", "trace", "traceid", "span", "spanid", "traceparent", "tracestate", "correlation", "correlationid", "request",
			"requestid", "event", "eventid", "messageid", "tracking", "trackingnumber", "trackingno", "shipment", "parcel", "sku", "ean", "gtin", "upc", "isbn", "barcode",
			"serial", "serialno", "serialnumber", "imei", "iccid", "imsi", "meid", "etag", "revision", "rev", "build", "commit", "sha", "hash", "digest",
			"checksum", "crc", "fingerprint", "iban", "bic", "vin", "rrn", "arn", "stan", "batch", "job", "ticket", "version", "waybill",
			"b3", "dedup", "dedupe", "deduplication":
			reference = true
		case "phone", "phones", "phonenumber", "mobile", "msisdn", "tel", "telephone", "fax", "cell", "cellphone", "whatsapp", "sms":
			phone = true
		}
	}
	switch {
	case clock:
		return meansTime
	case card && !reference:
		return meansCard
	case card:
		return means
	case phone:
		return meansPhone
	case reference:
		return meansReference
	}
	if n := len(all); n > 2 && w.k == 1 {
		// customerid, orderid, accountid: one word that ends in id.
		switch {
		case bytes.HasSuffix(all, []byte("uuid")), bytes.HasSuffix(all, []byte("guid")), bytes.HasSuffix(all, []byte("orderid")),
			bytes.HasSuffix(all, []byte("eventid")), bytes.HasSuffix(all, []byte("userid")), bytes.HasSuffix(all, []byte("accountid")),
			bytes.HasSuffix(all, []byte("customerid")), bytes.HasSuffix(all, []byte("messageid")), bytes.HasSuffix(all, []byte("transactionid")),
			bytes.HasSuffix(all, []byte("timestamp")), bytes.HasSuffix(all, []byte("offset")), bytes.HasSuffix(all, []byte("sequence")):
			return meansReference
		case bytes.HasPrefix(all, []byte("idempotency")):
			return meansReference
		}
	}
	return means
}

// pairName and pairValue are the member names of lists of names with values.
func pairName(name string) bool {
	switch name {
	case "name", "key", "header", "field", "param", "parameter", "attribute", "property", "k", "n", "Name", "Key":
		return true
	}
	return false
}

func pairValue(name string) bool {
	switch name {
	case "value", "val", "v", "Value", "Val":
		return true
	}
	return false
}

// named is what the value beside a name means; only names of secrets reach so far.
func named(name []byte) meaning {
	if len(name) < 3 || len(name) > 40 {
		return means
	}
	for _, c := range name {
		if c == ' ' || c >= 0x80 {
			return means
		}
	}
	switch m := nameMeaning(text(name), false); m {
	case meansCode, meansAuth, meansCookie, meansSecret:
		return m
	}
	return means
}

// protocolNumber are headers whose value a Kafka client or we write: a decimal number in them is never a card.
func protocolNumber(header string) bool {
	switch foldASCII(header) {
	case "x-original-partition", "x-original-offset", "x-quarantine-timestamp", "x-attempt-count", "x-original-timestamp", "content-length",
		"idempotency-key", "x-idempotency-key", "reprieve-original-timestamp", "reprieve-not-before", "reprieve-generation", "reprieve-redrive-try",
		"reprieve-v", "reprieve-behind", "reprieve-idempotency-token", "reprieve-entity-version", "traceparent", "tracestate", "b3",
		"__connect.errors.offset", "__connect.errors.partition", "kafka_dlt-original-offset", "kafka_dlt-original-partition",
		"kafka_dlt-original-timestamp":
		return true
	}
	return false
}

// foldASCII lowers ASCII letters; it allocates only when there is one to lower.
func foldASCII(s string) string {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c >= 'A' && c <= 'Z' {
			b := []byte(s)
			for j := range b {
				if b[j] >= 'A' && b[j] <= 'Z' {
					b[j] += 'a' - 'A'
				}
			}
			return string(b)
		}
	}
	return s
}

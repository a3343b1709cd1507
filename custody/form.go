package custody

import (
	"strconv"
	"time"

	"reprieve.dev/pipeline"
)

// Form is an item as exports, the API and -o json spell it: 64-bit numbers as text, times in RFC 3339 with milliseconds.
type Form struct {
	ID             string   `json:"id"`
	State          State    `json:"state"`
	Tenant         string   `json:"tenant"`
	Kind           string   `json:"kind"`
	Dialect        string   `json:"dialect"`
	Pipeline       string   `json:"pipeline,omitempty"`
	Consumer       string   `json:"consumer,omitempty"`
	Release        string   `json:"release,omitempty"`
	EventID        string   `json:"event_id,omitempty"`
	Entity         string   `json:"entity,omitempty"`
	BusinessID     string   `json:"business_id,omitempty"`
	Token          string   `json:"idempotency_token,omitempty"`
	Version        string   `json:"entity_version,omitempty"`
	Cluster        string   `json:"cluster,omitempty"`
	Topic          string   `json:"topic"`
	Partition      int32    `json:"partition"`
	Offset         string   `json:"offset"`
	Timestamp      string   `json:"timestamp,omitempty"`
	TimestampType  string   `json:"timestamp_type,omitempty"`
	At             string   `json:"at"`
	Letter         string   `json:"letter"`
	Class          string   `json:"class"`
	Code           string   `json:"code"`
	Fingerprint    string   `json:"fingerprint"`
	Group          string   `json:"group"`
	Stage          string   `json:"stage,omitempty"`
	Schema         string   `json:"schema,omitempty"`
	Policy         string   `json:"policy,omitempty"`
	Reason         string   `json:"reason"`
	Exception      string   `json:"exception,omitempty"`
	Attempts       int      `json:"attempts"`
	DigestFaithful string   `json:"digest_faithful,omitempty"`
	DigestRedacted string   `json:"digest_redacted,omitempty"`
	Faithful       string   `json:"faithful"`
	Sealed         bool     `json:"sealed"`
	Generation     uint32   `json:"generation,omitempty"`
	Quarantined    string   `json:"quarantined"`
	Taken          string   `json:"taken"`
	LastSeen       string   `json:"last_seen"`
	Changed        string   `json:"changed"`
	Confirmed      string   `json:"confirmed"`
	Flags          []string `json:"flags"`
	Sightings      int      `json:"sightings"`
	Owner          string   `json:"owner,omitempty"`
	Ticket         string   `json:"ticket,omitempty"`
	Redrive        string   `json:"redrive,omitempty"`
	Try            uint16   `json:"try,omitempty"`
	Repair         string   `json:"repair,omitempty"`
	Resolution     string   `json:"resolution,omitempty"`
	LegalHold      string   `json:"legal_hold,omitempty"`
	Data           string   `json:"data,omitempty"`
	Expires        string   `json:"expires,omitempty"`
	Rev            string   `json:"rev"`
}

func timeForm(ms int64) string {
	if ms <= 0 {
		return ""
	}
	return time.UnixMilli(ms).UTC().Format(pipeline.TimeForm)
}

// Form is the item as it is shown to programs.
func (it *Item) Form() Form {
	f := Form{ID: string(it.ID), State: it.State, Tenant: it.Tenant, Kind: string(it.Kind), Dialect: it.Dialect, Pipeline: it.Pipeline, Consumer: it.Consumer, Release: it.Release,
		EventID: it.EventID, Entity: it.Entity, BusinessID: it.BusinessID, Token: it.Token, Version: it.Version, Cluster: it.Cluster,
		Topic: it.Original.Topic, Partition: it.Original.Partition, Offset: strconv.FormatInt(it.Original.Offset, 10),
		At: it.At.String(), Letter: it.Letter.String(), Class: it.Class.String(), Code: string(it.Code), Fingerprint: string(it.Fingerprint), Group: string(it.Group()), Stage: it.Stage, Schema: it.Schema,
		Policy: string(it.Policy), Reason: it.Reason, Exception: it.Exception, Attempts: it.Attempts, DigestFaithful: string(it.DigestFaithful), DigestRedacted: string(it.DigestRedacted),
		Faithful: string(it.Faithful), Sealed: it.Enc != "", Generation: it.Generation, Quarantined: timeForm(it.QuarantinedMS), Taken: timeForm(it.TakenMS), LastSeen: timeForm(it.LastSeenMS),
		Changed: timeForm(it.ChangedMS), Confirmed: it.Confirmed.String(), Flags: it.Flags.Names(), Sightings: it.Sightings, Owner: it.Owner, Ticket: it.Ticket, Redrive: string(it.Redrive),
		Try: it.Try, Repair: it.Repair, Resolution: it.Resolution, LegalHold: it.LegalHold, Data: it.Data, Expires: timeForm(it.ownEnd()), Rev: strconv.FormatInt(it.Rev, 10)}
	if it.TimeType != pipeline.TimeNone {
		f.Timestamp, f.TimestampType = timeForm(it.OriginalMS), it.TimeType.String()
	}
	return f
}

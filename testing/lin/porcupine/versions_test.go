package main

import (
	"math/rand"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// Operations at given times.
func put(call, end int64, key uint32, value uint64) op {
	return op{call: call, end: end, key: key, value: value, kind: insert, result: 1}
}
func swap(call, end int64, key uint32, value uint64) op {
	return op{call: call, end: end, key: key, value: value, kind: update, result: 1}
}
func remove(call, end int64, key uint32) op {
	return op{call: call, end: end, key: key, kind: erase, result: 1}
}
func closes(call, end int64, version uint64) op {
	return op{call: call, end: end, key: allKeys, kind: tag, result: 1, version: version}
}
func reads(call, end int64, key uint32, version, value uint64) op {
	o := op{call: call, end: end, key: key, kind: findAt, version: version, value: value}
	if value != 0 {
		o.result = 1
	}
	return o
}
func latest(call, end int64, key uint32, value uint64) op {
	o := reads(call, end, key, 0, value)
	o.kind = find
	return o
}
func killed(call, end int64) op {
	return op{call: call, end: end, key: allKeys, kind: crash, result: 1}
}
func open(o op) op {
	o.result, o.end = pending, never
	if o.kind == tag {
		o.version = 0
	}
	return o
}

// Moves an operation to the process after the kill.
func later(o op) op {
	o.session = 1
	return o
}

const ok = "" // the complaint about a correct history

func TestHistories(t *testing.T) {
	for name, c := range map[string]struct {
		complaint string
		ops       []op
	}{
		"a version is what the tag found": {ok, []op{put(0, 1, 1, 7), closes(2, 3, 1), swap(4, 5, 1, 8),
			closes(6, 7, 2), remove(8, 9, 1), closes(10, 11, 3), reads(12, 13, 1, 1, 7), reads(12, 13, 1, 2, 8),
			reads(12, 13, 1, 3, 0), reads(12, 13, 2, 3, 0)}},
		"it returns the present": {"at no time", []op{put(0, 1, 1, 7), closes(2, 3, 1), swap(4, 5, 1, 8),
			reads(6, 7, 1, 1, 8)}},
		"it returns an earlier state": {"at no time", []op{put(0, 1, 1, 7), swap(2, 3, 1, 8), closes(4, 5, 1),
			reads(6, 7, 1, 1, 7)}},
		"an erase is in it": {"at no time", []op{put(0, 1, 1, 7), closes(2, 3, 1), remove(4, 5, 1),
			reads(6, 7, 1, 1, 0)}},
		"it was never written": {"at no time", []op{put(0, 1, 1, 7), closes(2, 3, 1), reads(6, 7, 1, 1, 9)}},
		"an insert that failed is in it": {"at no time", []op{{call: 0, end: 1, key: 1, value: 7, kind: insert},
			closes(2, 3, 1), reads(6, 7, 1, 1, 7)}},
		"a write beside the tag is in it": {ok, []op{put(0, 9, 1, 7), closes(2, 3, 1), reads(4, 5, 1, 1, 7)}},
		"or is not":                       {ok, []op{put(0, 9, 1, 7), closes(2, 3, 1), reads(4, 5, 1, 1, 0)}},
		"it changes":                      {"has changed", []op{put(0, 9, 1, 7), closes(2, 3, 1), reads(4, 5, 1, 1, 0), reads(6, 7, 1, 1, 7)}},
		// W3 of docs/design/pskiplist.md.
		"a write lands in a version that was read past it": {"key 1", []op{put(0, 9, 1, 7), closes(1, 2, 1),
			latest(3, 4, 1, 0), reads(10, 11, 1, 1, 7)}},
		"found before the tag, and not in it": {"key 1", []op{put(0, 9, 1, 7), latest(1, 2, 1, 7), closes(3, 4, 1),
			reads(5, 6, 1, 1, 0)}},
		"versions of two tags at once": {ok, []op{put(0, 9, 1, 7), closes(1, 8, 1), closes(1, 8, 2),
			reads(10, 11, 1, 1, 0), reads(10, 11, 1, 2, 7)}},
		"in the wrong order": {"key 1", []op{put(0, 9, 1, 7), closes(1, 8, 1), closes(1, 8, 2),
			reads(10, 11, 1, 1, 7), reads(10, 11, 1, 2, 0)}},
		"two keys beside a tag": {ok, []op{closes(0, 9, 1), put(1, 2, 1, 7), put(3, 4, 2, 8),
			reads(10, 11, 1, 1, 7), reads(10, 11, 2, 1, 0)}},
		"the later write without the earlier": {"at no time", []op{closes(0, 9, 1), put(1, 2, 1, 7), put(3, 4, 2, 8),
			reads(10, 11, 1, 1, 0), reads(10, 11, 2, 1, 8)}},
		"the later write without the erase": {"at no time", []op{put(-4, -3, 1, 6), closes(0, 9, 1), remove(1, 2, 1),
			put(3, 4, 2, 8), reads(10, 11, 1, 1, 6), reads(10, 11, 2, 1, 8)}},
		"a number twice":          {"two tags", []op{closes(0, 1, 1), closes(2, 3, 1)}},
		"a number falls":          {"neighbours", []op{closes(0, 1, 2), closes(2, 3, 1)}},
		"a number is left out":    {"of 2 tags", []op{closes(0, 1, 1), closes(2, 3, 3)}},
		"read before it was made": {"before it was made", []op{reads(0, 1, 1, 1, 0), closes(2, 3, 1)}},
		"no tag":                  {"no tag has made it", []op{put(0, 1, 1, 7), reads(2, 3, 1, 1, 7)}},
		"it lasts": {ok, []op{put(0, 1, 1, 7), closes(2, 3, 1), swap(4, 5, 1, 8), killed(6, 7),
			later(reads(8, 9, 1, 1, 7)), later(latest(8, 9, 1, 8))}},
		"it is lost": {"at no time", []op{put(0, 1, 1, 7), closes(2, 3, 1), swap(4, 5, 1, 8), killed(6, 7),
			later(reads(8, 9, 1, 1, 0)), later(latest(8, 9, 1, 8))}},
		"numbers go on above what was left out": {ok, []op{closes(0, 1, 1), killed(2, 3), later(closes(4, 5, 9)),
			later(closes(6, 7, 10))}},
		"a number comes again": {"two tags", []op{closes(0, 1, 1), killed(2, 3), later(closes(4, 5, 1))}},
		"a tag in flight was read, and stays": {ok, []op{put(0, 1, 1, 7), open(closes(2, 0, 0)), reads(3, 4, 1, 1, 7),
			swap(5, 6, 1, 8), killed(7, 8), later(reads(9, 10, 1, 1, 7))}},
		"read, and does not": {"has changed", []op{put(0, 1, 1, 7), open(closes(2, 0, 0)), reads(3, 4, 1, 1, 7),
			swap(5, 6, 1, 8), killed(7, 8), later(reads(9, 10, 1, 1, 8))}},
		"a tag in flight has a number": {ok, []op{closes(0, 1, 1), open(closes(2, 0, 0)), closes(3, 4, 3),
			killed(5, 6)}},
		"two tags in flight have not": {"of 3 tags", []op{closes(0, 1, 1), open(closes(2, 0, 0)), closes(3, 4, 4),
			killed(5, 6)}},
		"a write in flight is in the tag before the kill": {ok, []op{open(put(0, 0, 1, 7)), closes(1, 2, 1),
			killed(3, 4), later(reads(5, 6, 1, 1, 7)), later(latest(7, 8, 1, 7))}},
		"and not in the present": {"key 1", []op{open(put(0, 0, 1, 7)), closes(1, 2, 1), killed(3, 4),
			later(reads(5, 6, 1, 1, 7)), later(latest(7, 8, 1, 0))}},
		"a write in flight lands after the kill": {"key 1", []op{open(put(0, 0, 1, 7)), killed(3, 4),
			later(closes(5, 6, 9)), later(latest(7, 8, 1, 7)), later(reads(7, 8, 1, 9, 0))}},
	} {
		result, where := judge(c.ops, time.Minute, func([]porcupine.Operation) {})
		switch {
		case c.complaint == ok && result != porcupine.Ok:
			t.Errorf("%s: %s, %s", name, result, where)
		case c.complaint != ok && (result != porcupine.Illegal || !strings.Contains(where, c.complaint)):
			t.Errorf("%s: %s, %q instead of %q", name, result, where, c.complaint)
		}
	}
}

// A map of two keys and its versions as a whole: the definition that versions.go is compared with.
type whole struct {
	present [2]uint64 // 0: absent
	session uint16
	tagged  bool // since the last kill
	closed  [64]closed
	tags    int
}
type closed struct {
	version uint64
	keys    [2]uint64
}

func (s *whole) last() uint64 {
	if s.tags == 0 {
		return 0
	}
	return s.closed[s.tags-1].version
}

// Returns nil if there is no such version.
func (s *whole) at(version uint64) *closed {
	for i := range s.closed[:s.tags] {
		if s.closed[i].version == version {
			return &s.closed[i]
		}
	}
	return nil
}

func (s whole) step(o *op) (bool, whole) {
	if o.kind == crash {
		s.session++
		s.tagged = false
		return s.session == o.session+1, s
	}
	if o.result == pending && s.session > o.session {
		return true, s
	}
	if s.session != o.session {
		return false, s
	}
	switch o.kind {
	case tag:
		version := s.last() + 1
		fits := o.result == pending || o.version == version ||
			(!s.tagged && s.session > 0 && o.version > version)
		if o.result != pending {
			version = o.version
		}
		s.closed[s.tags] = closed{version, s.present}
		s.tags++
		s.tagged = true
		return fits, s
	case findAt:
		c := s.at(o.version)
		return c != nil && c.keys[o.key] == o.value && (o.result != absent) == (o.value != 0), s
	default:
		value := s.present[o.key]
		fits, after := step(state{value: value, session: s.session, present: value != 0}, o)
		s.present[o.key] = after.value
		return fits, s
	}
}

var definition = porcupine.Model{
	Init: func() interface{} { return whole{} },
	Step: func(s, input, _ interface{}) (bool, interface{}) {
		fits, next := s.(whole).step(input.(*op))
		return fits, next
	},
	Equal: func(a, b interface{}) bool { return a.(whole) == b.(whole) },
}

// An operation, and the time at which it takes effect.
type event struct {
	op
	at    int64
	torn  bool // a tag that captures the second key at its end
	later bool // that end
}

const kill = 60

// The operations of a thread, and their longest duration.
type work struct {
	kinds   []uint8
	longest int64
}

var mixed = work{[]uint8{insert, upsert, update, erase, find, findAt, findAt, tag, tag}, 40}

// The operations of three threads until they are killed, and of three others after the kill.
func events(r *rand.Rand, threads [3]work, torn bool) []event {
	var all []event
	for thread := int64(0); thread < 6; thread++ {
		does := threads[thread%3]
		session := thread / 3
		for now := session*2*kill + thread; now < (session*2+1)*kill; {
			o := op{call: now, end: now + 1 + r.Int63n(does.longest), key: uint32(r.Intn(2)),
				session: uint16(session), kind: does.kinds[r.Intn(len(does.kinds))]}
			now = o.end + 1 + r.Int63n(does.longest/4)
			switch o.kind {
			case insert, upsert, update:
				o.value = uint64(len(all) + 1)
			case findAt:
				o.version = uint64(1 + r.Intn(4))
			}
			e := event{op: o, at: o.call + r.Int63n(o.end-o.call+1), torn: torn && o.kind == tag}
			all = append(all, e)
		}
	}
	all = append(all, event{op: killed(kill, kill+1), at: kill})
	sort.SliceStable(all, func(i, j int) bool { return all[i].at < all[j].at })
	return all
}

// A history with results by the definition; if torn, with tags that are not atomic.
func random(r *rand.Rand, threads [3]work, torn bool) []op {
	var ops []op
	var state whole
	var ends []event
	for _, e := range events(r, threads, torn) {
		for i, t := range ends {
			if t.end <= e.at && t.later {
				state.at(t.version).keys[1] = state.present[1]
				ends[i].later = false
			}
		}
		o := e.op
		cut := o.session == 0 && o.end >= kill && o.kind != crash
		if cut && (o.kind == find || o.kind == findAt) {
			continue
		}
		if !cut || e.at < kill {
			if o.kind == tag {
				o.version = state.last() + 1
				if o.session == 1 && !state.tagged {
					o.version += uint64(r.Intn(2)) * 3
				}
			}
			if !finish(&state, &o) {
				continue // there is no such version
			}
			if e.torn {
				ends = append(ends, event{op: o, later: true})
			}
		}
		if cut {
			o = open(o)
		}
		ops = append(ops, o)
	}
	return ops
}

// Sets the result of the operation by the definition. Returns false if it has none.
func finish(s *whole, o *op) bool {
	for _, o.result = range []uint8{0, 1} {
		if o.kind == find {
			o.value = s.present[o.key]
		} else if c := s.at(o.version); o.kind == findAt && c != nil {
			o.value = c.keys[o.key]
		}
		if fits, next := s.step(o); fits && (o.kind != tag || o.result == 1) {
			*s = next
			return true
		}
	}
	return false
}

// Whether the recorder could record it: the first read of a version that no tag has returned is in
// the session that made the version.
func recordable(ops []op) bool {
	known := map[uint64]bool{}
	inFlight := false
	for _, o := range ops {
		known[o.version] = known[o.version] || o.kind == tag || (o.kind == findAt && o.session == 0)
		inFlight = inFlight || (o.kind == tag && o.result == pending)
	}
	for _, o := range ops {
		if o.kind == findAt && !known[o.version] && inFlight {
			return false
		}
	}
	return true
}

// Replaces one result by another.
func spoil(r *rand.Rand, ops []op) []op {
	ops = append([]op(nil), ops...)
	for tries := 0; tries < 100; tries++ {
		o := &ops[r.Intn(len(ops))]
		switch {
		case o.kind == findAt && r.Intn(3) > 0:
			o.value = uint64(r.Intn(8))
			o.result = map[bool]uint8{true: 1}[o.value != 0]
		case o.kind == findAt:
			o.version = uint64(1 + r.Intn(4))
		case o.kind == tag && o.result != pending:
			o.version += uint64(r.Intn(3))
			o.version--
		case o.kind <= erase && o.result != pending:
			o.result = 1 - o.result
		default:
			continue
		}
		return ops
	}
	return ops
}

// Histories that the definition explains must not be rejected. Of the others, at most 1% may pass.
func TestAgainstTheDefinition(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	all := [3]work{mixed, mixed, mixed}
	apart := [3]work{{[]uint8{upsert, erase}, 8}, {[]uint8{tag}, 40}, {[]uint8{findAt}, 4}}
	for _, c := range []struct {
		name        string
		threads     [3]work
		torn, spoil bool
	}{
		{"all do everything", all, false, false}, {"and one result is wrong", all, false, true},
		{"one writes, one tags, one reads", apart, false, false}, {"and tags are torn", apart, true, false},
	} {
		explained, wrong, missed := 0, 0, 0
		for round := 0; round < 1500; round++ {
			ops := random(r, c.threads, c.torn)
			if c.spoil {
				ops = spoil(r, ops)
			}
			if !recordable(ops) {
				continue
			}
			var all []porcupine.Operation
			for i := range ops {
				all = append(all, operation(&ops[i]))
			}
			right := porcupine.CheckOperationsTimeout(definition, all, time.Minute)
			result, where := judge(ops, time.Minute, func([]porcupine.Operation) {})
			switch {
			case right == porcupine.Unknown || result == porcupine.Unknown:
				t.Fatal("time was up")
			case right == porcupine.Ok:
				explained++
				if result != porcupine.Ok {
					t.Fatalf("%s, but the definition explains %+v", where, ops)
				}
			default:
				wrong++
				if result == porcupine.Ok {
					missed++
				}
			}
		}
		t.Logf("%s: %d explained; %d not, of which %d passed", c.name, explained, wrong, missed)
		bad := c.torn || c.spoil
		if explained < 100 || bad != (wrong > 100) || missed*100 > wrong {
			t.Errorf("%s: %d explained; %d not, of which %d passed", c.name, explained, wrong, missed)
		}
	}
}

// Reads at versions.
//
// A tag closes a version: it captures all keys at one moment, and a read at the version returns
// what it captured. A key that was read at a version therefore becomes one find of that key at the
// moment of the tag. The moment lies between the tag's call and its end, and moments have the order
// of their versions. The other result of a tag is its number. Both are judged here. The finds then
// join the other operations of their key.
//
// Checking key by key does not show that the moment is the same for all keys. Each moment is
// therefore first narrowed to the times at which every key can have had the value that was read, by
// the calls and ends of that key's writes. A history that leaves no time is rejected. No
// linearizable history is rejected. Of the others, only those can pass that each key explains for
// itself within these times (versions_test.go).
package main

import (
	"fmt"
	"math"
	"sort"
)

// From the call of a write until the end of the first write that surely came later. Within it the
// write can have been the last one of its key.
type span struct{ from, until int64 }

func (s span) within(t span) span {
	if s.from < t.from {
		s.from = t.from
	}
	if s.until > t.until {
		s.until = t.until
	}
	return s
}

// The end of a span without an end.
const never = math.MaxInt64

// The times at which a key can have had each value. Every write has its own value; a key may be
// absent several times.
type past struct {
	values   map[uint64]span
	absences []span
}

// The past of one key by its writes. `ends`: the times at which the sessions were killed. An
// operation in flight has taken effect by then, or never does.
func pastOf(writes []*op, ends map[uint16]int64) past {
	var sure []*op // have changed the key and are not in flight
	for _, w := range writes {
		if w.result != pending && mayChange(w) {
			sure = append(sure, w)
		}
	}
	sort.Slice(sure, func(i, j int) bool { return sure[i].call < sure[j].call })
	soonest := make([]int64, len(sure)+1) // the first end among those from here on
	soonest[len(sure)] = never
	for i := len(sure) - 1; i >= 0; i-- {
		soonest[i] = soonest[i+1]
		if sure[i].end < soonest[i] {
			soonest[i] = sure[i].end
		}
	}
	p := past{values: map[uint64]span{}, absences: []span{{math.MinInt64, soonest[0]}}}
	for _, w := range writes {
		if !mayChange(w) {
			continue
		}
		end := w.end
		if killed, ok := ends[w.session]; ok && w.result == pending {
			end = killed
		}
		next := sort.Search(len(sure), func(i int) bool { return sure[i].call > end })
		s := span{w.call, soonest[next]}
		if w.kind == erase || w.kind == eraseIf || w.kind == batchErase {
			p.absences = append(p.absences, s)
		} else {
			p.values[w.value] = s
		}
	}
	sort.Slice(p.absences, func(i, j int) bool { return p.absences[i].from < p.absences[j].from })
	return p
}

// False for an insert that found the key, and an update or erase that did not, or not with the value
// that it expected: these changed nothing.
func mayChange(o *op) bool { return isWrite(o) && (o.kind == upsert || o.result != absent) }

func isWrite(o *op) bool { return o.kind <= erase || o.kind >= updateIf }

// The value of one key at a version.
type reading struct {
	value   uint64
	present bool
}

// A version, and the times at which its tag can have taken effect.
type moment struct {
	version uint64
	session uint16
	span
	reads map[uint32]reading
}

// Narrows the moment to what the past of a key allows. Returns false if nothing is left.
func (m *moment) narrow(r reading, p *past) bool {
	if r.present {
		s, written := p.values[r.value]
		m.span = m.within(s)
		return written && m.from <= m.until
	}
	hull := span{never, math.MinInt64}
	for _, a := range p.absences {
		if a.from > m.until {
			break
		}
		s := a.within(m.span)
		if s.from > s.until {
			continue
		}
		if s.from < hull.from {
			hull.from = s.from
		}
		if s.until > hull.until {
			hull.until = s.until
		}
	}
	m.span = hull
	return m.from <= m.until
}

// The tags of a session: how many there were, and how many have an unknown number because the
// process was killed.
type tags struct {
	all, open int
	first     int64 // call of the first open one
}

// The versions that tags have returned, or that were read, by number.
func momentsOf(ops []op, ends map[uint16]int64) ([]*moment, error) {
	sessions := map[uint16]*tags{}
	found := map[uint64]*moment{}
	for i := range ops {
		o := &ops[i]
		if o.kind != tag {
			continue
		}
		of := sessions[o.session]
		if of == nil {
			of = &tags{first: never}
			sessions[o.session] = of
		}
		of.all++
		if o.result == pending {
			of.open++
			if o.call < of.first {
				of.first = o.call
			}
			continue
		}
		if found[o.version] != nil {
			return nil, fmt.Errorf("two tags returned version %d", o.version)
		}
		found[o.version] = &moment{o.version, o.session, span{o.call, o.end}, map[uint32]reading{}}
	}
	reads := make([]*op, 0, len(ops))
	for i := range ops {
		if ops[i].kind == findAt {
			reads = append(reads, &ops[i])
		}
	}
	// The recorder reads no version of another session that no tag has returned and no read has seen.
	sort.SliceStable(reads, func(i, j int) bool { return reads[i].session < reads[j].session })
	for _, o := range reads {
		m := found[o.version]
		if m == nil {
			of := sessions[o.session]
			if of == nil || of.open == 0 {
				return nil, fmt.Errorf("version %d was read, but no tag has made it", o.version)
			}
			m = &moment{o.version, o.session, span{of.first, ends[o.session]}, map[uint32]reading{}}
			found[o.version] = m
		}
		if o.end < m.from {
			return nil, fmt.Errorf("version %d was read before it was made", o.version)
		}
		if o.end < m.until {
			m.until = o.end
		}
		r := reading{o.value, o.result != absent}
		if was, again := m.reads[o.key]; again && was != r {
			return nil, fmt.Errorf("version %d: key %d has changed", o.version, o.key)
		}
		m.reads[o.key] = r
	}
	moments := make([]*moment, 0, len(found))
	for _, m := range found {
		moments = append(moments, m)
	}
	sort.Slice(moments, func(i, j int) bool { return moments[i].version < moments[j].version })
	return moments, numbered(moments, sessions)
}

// The first version is 1, and only a crash skips versions.
func numbered(moments []*moment, sessions map[uint16]*tags) error {
	below := map[uint16]uint64{0: 0} // the number before the first of the session
	known := map[uint16]uint64{}     // tags of the session that made one of these versions
	for _, m := range moments {
		of := sessions[m.session]
		if _, ok := below[m.session]; !ok {
			below[m.session] = m.version - 1
		}
		known[m.session]++
		tags := uint64(of.all)
		if of.first > m.until { // tags in flight at the kill come later
			tags = known[m.session]
		}
		if from := below[m.session]; m.version == 0 || m.version-from-1 >= tags {
			return fmt.Errorf("version %d, above %d, is not one of %d tags", m.version, from, tags)
		}
	}
	return nil
}

// Narrows each moment to the times that its keys and the other versions allow.
func narrow(moments []*moment, pasts map[uint32]*past) error {
	for again := true; again; {
		again = false
		earliest := int64(math.MinInt64)
		for _, m := range moments {
			was := m.span
			if m.from < earliest {
				m.from = earliest
			}
			if m.from > m.until {
				break // reported below
			}
			for key, r := range m.reads {
				if !m.narrow(r, pasts[key]) {
					return fmt.Errorf("version %d, read of key %d: at no time did all keys have these values", m.version, key)
				}
			}
			earliest = m.from
			again = again || m.span != was
		}
		latest := int64(never)
		for i := len(moments) - 1; i >= 0; i-- {
			m := moments[i]
			if m.until > latest {
				m.until, again = latest, true
			}
			if m.from > m.until {
				return fmt.Errorf("version %d cannot lie between its neighbours", m.version)
			}
			latest = m.until
		}
	}
	return nil
}

// Returns the reads at versions as finds at the moments of the tags, or why no order explains them.
func atTags(ops []op) ([]op, error) {
	ends := map[uint16]int64{}
	for i := range ops {
		if ops[i].kind == crash {
			ends[ops[i].session] = ops[i].end
		}
	}
	moments, err := momentsOf(ops, ends)
	if err != nil || len(moments) == 0 {
		return nil, err
	}
	writes := map[uint32][]*op{}
	for i := range ops {
		if isWrite(&ops[i]) {
			writes[ops[i].key] = append(writes[ops[i].key], &ops[i])
		}
	}
	pasts := map[uint32]*past{}
	for _, m := range moments {
		for key := range m.reads {
			if pasts[key] == nil {
				p := pastOf(writes[key], ends)
				pasts[key] = &p
			}
		}
	}
	if err := narrow(moments, pasts); err != nil {
		return nil, err
	}
	var finds []op
	for _, m := range moments {
		for key, r := range m.reads {
			result := uint8(absent)
			if r.present {
				result = 1
			}
			finds = append(finds, op{m.from, m.until, r.value, m.version, key, findAt, result, m.session})
		}
	}
	return finds, nil
}

// Checks recorded histories (testing/lin_history.h) for linearizability with porcupine.
//
//	porcupine [-timeout 60s] [-expect ok|illegal|some] [-html FOLDER] FILE...
//
// A map is linearizable if each of its keys is, so keys are checked one by one. Prints the files that
// are not as expected, then one line of totals; exit status 1 if there are any. An answer "unknown",
// because time was up, is never the expected one. "some": at least one file must be illegal.
package main

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	magic      = 0x316e696c64726570 // "perdlin1"
	headerSize = 16
	opSize     = 32
	allKeys    = math.MaxUint32
	absent     = 0 // answers
	pending    = 2
)

// As in testing/lin_history.h.
const (
	insert = iota
	upsert
	update
	erase
	find
	crash
)

var kinds = [...]string{"insert", "upsert", "update", "erase", "find", "crash"}

type op struct {
	call, end    int64
	value        uint64
	key          uint32
	kind, answer uint8
	session      uint16
}

// What is known of one key. A process that was killed ends a session.
type state struct {
	value   uint64
	session uint16
	present bool
}

// What an operation answers in a state, and the state after it. An operation that was in flight when
// its process was killed may have any answer; it happens before the kill or not at all.
func step(s state, o *op) (bool, state) {
	if o.kind == crash {
		s.session++
		return s.session == o.session+1, s
	}
	if o.answer == pending && s.session > o.session {
		return true, s
	}
	if s.session != o.session {
		return false, s
	}
	was := s.present
	switch o.kind {
	case insert:
		if !was {
			s.present, s.value = true, o.value
		}
		return o.answer == pending || (o.answer != absent) == !was, s
	case upsert:
		s.present, s.value = true, o.value
		return o.answer == pending || (o.answer != absent) == !was, s
	case update:
		if was {
			s.value = o.value
		}
		return o.answer == pending || (o.answer != absent) == was, s
	case erase:
		s.present, s.value = false, 0
		return o.answer == pending || (o.answer != absent) == was, s
	default:
		return (o.answer != absent) == was && (!was || o.value == s.value), s
	}
}

func describe(o *op) string {
	answer := [...]string{"no", "yes", "?"}[o.answer]
	if o.kind == crash {
		return "killed"
	}
	return fmt.Sprintf("%s(%x) %s", kinds[o.kind], o.value, answer)
}

var model = porcupine.Model{
	Init: func() interface{} { return state{} },
	Step: func(s, input, _ interface{}) (bool, interface{}) {
		ok, next := step(s.(state), input.(*op))
		return ok, next
	},
	Equal: func(a, b interface{}) bool { return a.(state) == b.(state) },
	Hash: func(s interface{}) uint64 {
		x := s.(state)
		return (x.value + uint64(x.session)) * 0x9e3779b97f4a7c15
	},
	DescribeOperation: func(input, _ interface{}) string { return describe(input.(*op)) },
	DescribeState: func(s interface{}) string {
		if x := s.(state); x.present {
			return fmt.Sprintf("%x", x.value)
		}
		return "absent"
	},
}

// The operations of a file by key. A kill belongs to every key.
func load(path string) (map[uint32][]porcupine.Operation, int, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, 0, err
	}
	le := binary.LittleEndian
	if len(data) < headerSize || le.Uint64(data) != magic {
		return nil, 0, fmt.Errorf("not a history")
	}
	count := int(le.Uint64(data[8:]))
	if count == 0 || len(data) != headerSize+count*opSize {
		return nil, 0, fmt.Errorf("empty or cut: %d operations in %d bytes", count, len(data))
	}
	ops := make([]op, count)
	keys := map[uint32][]porcupine.Operation{}
	var crashes []*op
	for i := range ops {
		b := data[headerSize+i*opSize:]
		o := &ops[i]
		*o = op{int64(le.Uint64(b)), int64(le.Uint64(b[8:])), le.Uint64(b[16:]),
			le.Uint32(b[24:]), b[28], b[29], le.Uint16(b[30:])}
		if int(o.kind) >= len(kinds) || o.answer > pending || o.end < o.call ||
			(o.kind == find && o.answer == pending) {
			return nil, 0, fmt.Errorf("operation %d is malformed", i)
		}
		if o.kind == crash {
			crashes = append(crashes, o)
			continue
		}
		keys[o.key] = append(keys[o.key], operation(o))
	}
	for key := range keys {
		for _, o := range crashes {
			keys[key] = append(keys[key], operation(o))
		}
	}
	return keys, count, nil
}

func operation(o *op) porcupine.Operation {
	return porcupine.Operation{ClientId: int(o.session), Input: o, Call: o.call, Return: o.end}
}

type verdict struct {
	path   string
	result porcupine.CheckResult
	err    error
	key    uint32
	ops    int
	took   time.Duration
}

func check(path string, timeout time.Duration, html string) verdict {
	start := time.Now()
	v := verdict{path: path, result: porcupine.Ok}
	keys, count, err := load(path)
	v.ops, v.err = count, err
	for key, history := range keys {
		result := porcupine.CheckOperationsTimeout(model, history, timeout)
		if result == porcupine.Unknown { // the machine may have been suspended: time goes on then
			result = porcupine.CheckOperationsTimeout(model, history, timeout)
		}
		if result == porcupine.Ok {
			continue
		}
		v.result, v.key = result, key
		if html != "" {
			draw(filepath.Join(html, filepath.Base(path)+".html"), history, timeout)
		}
		if result == porcupine.Illegal {
			break
		}
	}
	v.took = time.Since(start)
	return v
}

func draw(path string, history []porcupine.Operation, timeout time.Duration) {
	_, info := porcupine.CheckOperationsVerbose(model, history, timeout)
	if err := porcupine.VisualizePath(model, info, path); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

func main() {
	timeout := flag.Duration("timeout", time.Minute, "for one key")
	expect := flag.String("expect", "ok", "ok; for planted bugs illegal, or some")
	html := flag.String("html", "", "draw the keys that are not as expected into this folder")
	flag.Parse()
	wanted, known := map[string]porcupine.CheckResult{
		"ok": porcupine.Ok, "illegal": porcupine.Illegal, "some": porcupine.Illegal}[*expect]
	if flag.NArg() == 0 || !known {
		flag.Usage()
		os.Exit(2)
	}
	paths := make(chan string)
	verdicts := make(chan verdict)
	var workers sync.WaitGroup
	for i := 0; i < runtime.NumCPU(); i++ {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for path := range paths {
				verdicts <- check(path, *timeout, *html)
			}
		}()
	}
	go func() {
		for _, path := range flag.Args() {
			paths <- path
		}
		close(paths)
		workers.Wait()
		close(verdicts)
	}()
	files, ops, wrong, unknown := 0, 0, 0, 0
	var slowest time.Duration
	for v := range verdicts {
		files++
		ops += v.ops
		if v.took > slowest {
			slowest = v.took
		}
		if v.result == porcupine.Unknown {
			unknown++
		}
		if v.err != nil {
			wrong++
			fmt.Printf("%s: %v\n", v.path, v.err)
		} else if v.result != wanted {
			wrong++
			if *expect == "some" {
				continue
			}
			fmt.Printf("%s: %s, key %d, %d operations, %v\n", v.path, v.result, v.key, v.ops, v.took)
		}
	}
	fmt.Printf("files=%d operations=%d not_%s=%d unknown=%d slowest_ms=%d\n",
		files, ops, *expect, wrong, unknown, slowest.Milliseconds())
	if wrong != 0 && (*expect != "some" || wrong == files) {
		os.Exit(1)
	}
}

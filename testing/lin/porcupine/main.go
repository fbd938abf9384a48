// Checks recorded histories (testing/lin/lin_history.h) for linearizability with porcupine.
//
//	porcupine [-timeout 60s] [-expect ok|illegal|some] [-html FOLDER] FILE...
//
// A map is linearizable if each of its keys is. Keys are therefore checked one by one. Tags of
// versions connect keys; versions.go checks them. Prints the files that are not as expected, then a
// line of totals. Exit status 1 if there are any. The result "unknown", after the timeout, is never
// the expected one. "some": at least one file must be illegal.
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
	magic      = 0x326e696c64726570 // "perdlin2"
	headerSize = 16
	opSize     = 40
	allKeys    = math.MaxUint32
	absent     = 0 // results
	pending    = 2
)

// As in testing/lin/lin_history.h.
const (
	insert = iota
	upsert
	update
	erase
	find
	findAt // reads the key at a version
	tag    // for all keys; makes a version
	crash
	updateIf // the version is the expected value
	eraseIf  // likewise
	batchPut // of a batch: its result says only that the batch was committed
	batchErase
)

var kinds = [...]string{"insert", "upsert", "update", "erase", "find", "find at version", "tag", "crash",
	"update if", "erase if", "put in a batch", "erase in a batch"}

type op struct {
	call, end    int64
	value        uint64
	version      uint64
	key          uint32
	kind, result uint8
	session      uint16
}

// The known state of one key. A process that was killed ends a session. The version is the last one
// at which the key was read.
type state struct {
	value   uint64
	version uint64
	session uint16
	present bool
}

// Returns whether the operation can have its result in the state, and the state after it. An
// operation that was in flight when its process was killed may have any result. It takes effect
// before the kill, or never.
func step(s state, o *op) (bool, state) {
	if o.kind == crash {
		s.session++
		return s.session == o.session+1, s
	}
	if o.result == pending && s.session > o.session {
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
		return o.result == pending || (o.result != absent) == !was, s
	case upsert:
		s.present, s.value = true, o.value
		return o.result == pending || (o.result != absent) == !was, s
	case update:
		if was {
			s.value = o.value
		}
		return o.result == pending || (o.result != absent) == was, s
	case erase:
		s.present, s.value = false, 0
		return o.result == pending || (o.result != absent) == was, s
	case batchPut:
		s.present, s.value = true, o.value
		return true, s
	case batchErase:
		s.present, s.value = false, 0
		return true, s
	case updateIf, eraseIf:
		had := was && s.value == o.version
		if had && o.kind == updateIf {
			s.value = o.value
		} else if had {
			s.present, s.value = false, 0
		}
		return o.result == pending || (o.result != absent) == had, s
	default:
		if o.kind == findAt {
			if o.version <= s.version {
				return false, s
			}
			s.version = o.version
		}
		return (o.result != absent) == was && (!was || o.value == s.value), s
	}
}

func describe(o *op) string {
	result := [...]string{"no", "yes", "?"}[o.result]
	if o.kind == crash {
		return "killed"
	}
	if o.kind == findAt {
		return fmt.Sprintf("tag %d: %x %s", o.version, o.value, result)
	}
	return fmt.Sprintf("%s(%x) %s", kinds[o.kind], o.value, result)
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
		return (x.value + x.version<<20 + uint64(x.session)) * 0x9e3779b97f4a7c15
	},
	DescribeOperation: func(input, _ interface{}) string { return describe(input.(*op)) },
	DescribeState: func(s interface{}) string {
		if x := s.(state); x.present {
			return fmt.Sprintf("%x", x.value)
		}
		return "absent"
	},
}

func load(path string) ([]op, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	if len(data) < headerSize || le.Uint64(data) != magic {
		return nil, fmt.Errorf("not a history")
	}
	count := int(le.Uint64(data[8:]))
	if count == 0 || len(data) != headerSize+count*opSize {
		return nil, fmt.Errorf("empty or cut: %d operations in %d bytes", count, len(data))
	}
	ops := make([]op, count)
	for i := range ops {
		b := data[headerSize+i*opSize:]
		o := &ops[i]
		*o = op{int64(le.Uint64(b)), int64(le.Uint64(b[8:])), le.Uint64(b[16:]), le.Uint64(b[24:]),
			le.Uint32(b[32:]), b[36], b[37], le.Uint16(b[38:])}
		read := o.kind == find || o.kind == findAt
		if int(o.kind) >= len(kinds) || o.result > pending || o.end < o.call ||
			(read && o.result == pending) {
			return nil, fmt.Errorf("operation %d is malformed", i)
		}
	}
	return ops, nil
}

// The operations by key, with reads at versions at the times of the tags. A kill belongs to every
// key.
func partition(ops []op) (map[uint32][]porcupine.Operation, error) {
	finds, err := atTags(ops)
	if err != nil {
		return nil, err
	}
	keys := map[uint32][]porcupine.Operation{}
	var crashes []*op
	for i := range ops {
		switch o := &ops[i]; o.kind {
		case crash:
			crashes = append(crashes, o)
		case tag, findAt:
		default:
			keys[o.key] = append(keys[o.key], operation(o))
		}
	}
	for i := range finds {
		keys[finds[i].key] = append(keys[finds[i].key], operation(&finds[i]))
	}
	for key := range keys {
		for _, o := range crashes {
			keys[key] = append(keys[key], operation(o))
		}
	}
	return keys, nil
}

func operation(o *op) porcupine.Operation {
	return porcupine.Operation{ClientId: int(o.session), Input: o, Call: o.call, Return: o.end}
}

type verdict struct {
	path   string
	result porcupine.CheckResult
	err    error
	where  string // what is wrong
	ops    int
	took   time.Duration
}

func check(path string, timeout time.Duration, html string) verdict {
	start := time.Now()
	ops, err := load(path)
	v := verdict{path: path, err: err, ops: len(ops)}
	v.result, v.where = judge(ops, timeout, func(history []porcupine.Operation) {
		if html != "" {
			draw(filepath.Join(html, filepath.Base(path)+".html"), history, timeout)
		}
	})
	v.took = time.Since(start)
	return v
}

// Returns the verdict, and the first key or version that is not Ok. Calls `wrong` with the
// operations of such a key.
func judge(ops []op, timeout time.Duration, wrong func([]porcupine.Operation)) (porcupine.CheckResult, string) {
	verdict, where := porcupine.Ok, ""
	keys, err := partition(ops)
	if err != nil {
		return porcupine.Illegal, err.Error()
	}
	for key, history := range keys {
		result := porcupine.CheckOperationsTimeout(model, history, timeout)
		if result == porcupine.Unknown { // time goes on while the machine is suspended: try again
			result = porcupine.CheckOperationsTimeout(model, history, timeout)
		}
		if result == porcupine.Ok {
			continue
		}
		verdict, where = result, fmt.Sprintf("key %d", key)
		wrong(history)
		if result == porcupine.Illegal {
			break
		}
	}
	return verdict, where
}

func draw(path string, history []porcupine.Operation, timeout time.Duration) {
	_, info := porcupine.CheckOperationsVerbose(model, history, timeout)
	if err := porcupine.VisualizePath(model, info, path); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

func main() {
	timeout := flag.Duration("timeout", time.Minute, "time limit for one key")
	expect := flag.String("expect", "ok", "expected verdict: ok; for planted bugs illegal or some")
	html := flag.String("html", "", "draw the keys that are not linearizable into this folder")
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
			if v.where != "" {
				v.where = " (" + v.where + ")"
			}
			fmt.Printf("%s: %s%s, %d operations, %v\n", v.path, v.result, v.where, v.ops, v.took)
		}
	}
	fmt.Printf("files=%d operations=%d not_%s=%d unknown=%d slowest_ms=%d\n",
		files, ops, *expect, wrong, unknown, slowest.Milliseconds())
	if wrong != 0 && (*expect != "some" || wrong == files) {
		os.Exit(1)
	}
}

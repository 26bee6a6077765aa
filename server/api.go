package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
)

// TxidHeader tells at which committed txid the rows of a query stand.
const TxidHeader = "Tridentd-Txid"

const (
	jsonType = "application/json"
	textType = "text/plain; charset=utf-8"
)

// handler routes requests; over the socket also those that act.
func (s *Server) handler(socket bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.index)
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.metrics, promhttp.HandlerOpts{
		ErrorLog: s.log.StandardLogger(nil), MaxRequestsInFlight: 4, Timeout: readTimeout,
	}))
	mux.HandleFunc("GET /api/v1/status", s.status)
	mux.HandleFunc("GET /api/v1/states", s.states)
	mux.HandleFunc("GET /api/v1/states/{name}", s.query)
	mux.HandleFunc("GET /api/v1/ledger", s.ledger)
	mux.HandleFunc("GET /api/v1/positions", s.positions)
	if b, ok := s.backend.(Answering); ok {
		mux.HandleFunc("GET /api/v1/queries", s.queries(b))
		mux.HandleFunc("GET /api/v1/queries/{name}", s.call(b))
		mux.HandleFunc("POST /api/v1/queries/{name}", s.call(b))
	}
	if socket {
		mux.HandleFunc("POST /api/v1/stop", s.stop)
		if c, ok := s.backend.(Checkpointer); ok {
			mux.HandleFunc("POST /api/v1/checkpoint", s.checkpoint(c))
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		mux.ServeHTTP(w, r)
	})
}

func (s *Server) index(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", textType)
	fmt.Fprint(w, `tridentd

/healthz               the process lives
/readyz                batches can be processed, or what stands in the way
/metrics               for Prometheus
/api/v1/status         the pipeline as it stands
/api/v1/states         its states
/api/v1/states/NAME    the rows of a state; ?key=… selects by the key's leading fields
/api/v1/queries        the queries that it answers
/api/v1/queries/NAME   the answer to one; ?ARGUMENT=VALUE&…
/api/v1/ledger         committed batches; ?from=N&to=M
/api/v1/positions      where the pipeline stands: what has committed
`)
}

func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", textType)
	fmt.Fprintln(w, "ok")
}

func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	st := s.backend.Status(r.Context())
	w.Header().Set("Content-Type", textType)
	if st.Ready {
		fmt.Fprintln(w, "ready")
		return
	}
	w.WriteHeader(http.StatusServiceUnavailable)
	if len(st.Reasons) == 0 {
		fmt.Fprintln(w, "not ready")
	}
	for _, reason := range st.Reasons {
		fmt.Fprintln(w, reason)
	}
}

func (s *Server) status(w http.ResponseWriter, r *http.Request) {
	st := s.backend.Status(r.Context())
	st.Listen = s.addr
	if st.InFlight == nil {
		st.InFlight = []InFlight{}
	}
	if st.Partitions == nil {
		st.Partitions = []PartitionStatus{}
	}
	s.writeJSON(w, http.StatusOK, st)
}

func (s *Server) states(w http.ResponseWriter, r *http.Request) {
	schemas, err := s.backend.States(r.Context())
	if err != nil {
		s.fail(w, err)
		return
	}
	if schemas == nil {
		schemas = []state.Schema{}
	}
	s.writeJSON(w, http.StatusOK, schemas)
}

func (s *Server) query(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	keys := r.URL.Query()["key"]
	if reads := s.untilClosed(); reads.Err() != nil {
		s.fail(w, context.Cause(reads))
		return
	}
	out, ctx, done := s.reading(w, r)
	defer done()
	var rows rowEncoder = &jsonRows{stream: out}
	if r.Header.Get("Accept") == rowsType {
		rows = &binaryRows{stream: out}
	}
	err := s.backend.Query(ctx, name, keys, rows)
	switch {
	case err == nil && !out.begun:
		panic("server: Backend.Query returned without Begin")
	case err == nil:
		rows.end()
	case !out.sent:
		s.fail(w, err)
	default:
		s.log.Debug("query failed under way", "state", name, "error", err)
		rows.fail(err)
	}
}

func (s *Server) ledger(w http.ResponseWriter, r *http.Request) {
	from, err := txidParam(r, "from")
	if err != nil {
		s.fail(w, err)
		return
	}
	to, err := txidParam(r, "to")
	if err != nil {
		s.fail(w, err)
		return
	}
	if reads := s.untilClosed(); reads.Err() != nil {
		s.fail(w, context.Cause(reads))
		return
	}
	out, ctx, done := s.reading(w, r)
	defer done()
	list := jsonList{stream: out}
	enc := json.NewEncoder(out)
	err = s.backend.Ledger(ctx, from, to, func(e *txstate.Entry) error {
		if err := list.next(); err != nil {
			return err
		}
		return enc.Encode(LedgerEntryOf(e))
	})
	switch {
	case err == nil:
		list.end()
	case !out.sent:
		s.fail(w, err)
	default:
		s.log.Debug("ledger failed under way", "error", err)
		out.abort()
	}
}

func (s *Server) stop(w http.ResponseWriter, _ *http.Request) {
	s.log.Info("asked to stop through the socket")
	s.backend.Stop()
	w.WriteHeader(http.StatusAccepted)
}

func txidParam(r *http.Request, name string) (batch.Txid, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return 0, nil
	}
	v, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, batch.NewError(batch.Permanent, batch.CodeConfiguration, "", fmt.Errorf("%s=%q is not a txid", name, text), "give a whole number")
	}
	return batch.Txid(v), nil
}

func (s *Server) writeJSON(w http.ResponseWriter, code int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("server: %T as JSON: %v", v, err))
	}
	w.Header().Set("Content-Type", jsonType)
	w.WriteHeader(code)
	if _, err := w.Write(append(b, '\n')); err != nil {
		s.log.Debug("answer not taken", "error", err)
	}
}

// failure is the body of an answer that is an error.
type failure struct {
	Error *ErrorStatus `json:"error"`
}

func (s *Server) fail(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	switch {
	case errors.Is(err, ErrNotFound):
		code = http.StatusNotFound
	case batch.CodeOf(err) == batch.CodeTimeout:
		code = http.StatusGatewayTimeout
	case batch.CodeOf(err) == batch.CodeConfiguration:
		code = http.StatusBadRequest
	case batch.KindOf(err) == batch.Transient:
		code = http.StatusServiceUnavailable
	}
	s.writeJSON(w, code, failure{ErrorStatusOf(err, time.Time{})})
}

// stream writes an answer of any length: buffered, and with a deadline that moves on with each part that the reader
// took, so that a slow reader is served and one that hangs is cut off.
type stream struct {
	w     http.ResponseWriter
	ctl   *http.ResponseController
	buf   *bufio.Writer
	begun bool // begin was called
	sent  bool // a part has left the buffer: the answer can't become another one any more
	reads context.Context
}

const streamBuffer = 64 << 10

// reading begins an answer that is read from the store. Its context ends, and a reader that hangs is cut off, with
// EndReads.
func (s *Server) reading(w http.ResponseWriter, r *http.Request) (*stream, context.Context, func()) {
	ctx, cancel := context.WithCancelCause(r.Context())
	reads := s.untilClosed()
	out := newStream(reads, w)
	stop := context.AfterFunc(reads, func() {
		cancel(context.Cause(reads))
		_ = out.ctl.SetWriteDeadline(time.Now()) // as in progressWriter
	})
	return out, ctx, func() {
		stop()
		cancel(nil)
	}
}

func newStream(reads context.Context, w http.ResponseWriter) *stream {
	s := &stream{w: w, ctl: http.NewResponseController(w), reads: reads}
	s.buf = bufio.NewWriterSize(progressWriter{s}, streamBuffer)
	return s
}

func (s *stream) begin(contentType string) {
	s.w.Header().Set("Content-Type", contentType)
	s.begun = true
}

func (s *stream) Write(b []byte) (int, error) { return s.buf.Write(b) }

// end sends what is buffered. An error means that the reader has gone; nobody is left to be told.
func (s *stream) end() { _ = s.buf.Flush() }

// abort breaks the connection off, so that the reader can't take what it got for the whole.
func (s *stream) abort() {
	s.end()
	panic(http.ErrAbortHandler)
}

type progressWriter struct{ s *stream }

func (p progressWriter) Write(b []byte) (int, error) {
	if p.s.reads.Err() != nil {
		return 0, context.Cause(p.s.reads)
	}
	p.s.sent = true
	// Not every ResponseWriter has deadlines (those of tests don't); the server's default holds then.
	_ = p.s.ctl.SetWriteDeadline(time.Now().Add(writeTimeout))
	return p.s.w.Write(b)
}

// jsonList writes the brackets and commas of a JSON array.
type jsonList struct {
	*stream
	n int
}

// next goes before each element.
func (l *jsonList) next() error {
	lead := ","
	if l.n == 0 {
		l.start()
		lead = "[\n"
	}
	l.n++
	_, err := l.buf.WriteString(lead)
	return err
}

func (l *jsonList) start() {
	if !l.begun {
		l.begin(jsonType)
	}
}

func (l *jsonList) end() {
	l.start()
	if l.n == 0 {
		_, _ = l.buf.WriteString("[")
	}
	_, _ = l.buf.WriteString("]\n")
	l.stream.end()
}

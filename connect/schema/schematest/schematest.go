// Package schematest has a stand-in for a schema registry: it speaks as much of the HTTP API as clients need to look schemas up, and
// keeps them in memory. It is no registry: it checks neither schemas nor their compatibility.
package schematest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
)

// Registry is the stand-in. Its methods may be called at any time.
type Registry struct {
	URL string

	mu       sync.Mutex
	schemas  []entry // by id - first
	subjects map[string][]int
	fail     int // the status that everything is answered with; 0: none
	user     string
	password string
	asked    map[string]int
}

type entry struct {
	Schema     string      `json:"schema"`
	Type       string      `json:"schemaType,omitempty"`
	References []Reference `json:"references,omitempty"`
}

// Reference is to a version of a subject, under the name that the referring schema uses.
type Reference struct {
	Name    string `json:"name"`
	Subject string `json:"subject"`
	Version int    `json:"version"`
}

// first is the id of the first schema: none that a forgotten conversion would hit.
const first = 70_001

// New starts a stand-in on this machine, until the test ends.
func New(t testing.TB) *Registry {
	r := &Registry{subjects: map[string][]int{}, asked: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /schemas/types", func(w http.ResponseWriter, _ *http.Request) { reply(w, []string{"AVRO", "PROTOBUF"}) })
	mux.HandleFunc("GET /schemas/ids/{id}", r.byID)
	mux.HandleFunc("GET /subjects/{subject}/versions/{version}", r.byVersion)
	mux.HandleFunc("POST /subjects/{subject}", r.lookUp)
	mux.HandleFunc("POST /subjects/{subject}/versions", r.register)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.asked[req.Method+" "+req.URL.Path]++
		user, password, _ := req.BasicAuth()
		switch {
		case r.fail != 0:
			refuse(w, r.fail, r.fail*100+1, "as the test wants it")
		case user != r.user || password != r.password:
			refuse(w, http.StatusUnauthorized, 401, "Unauthorized")
		default:
			mux.ServeHTTP(w, req)
		}
	}))
	t.Cleanup(s.Close)
	r.URL = s.URL
	return r
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/vnd.schemaregistry.v1+json")
	_ = json.NewEncoder(w).Encode(v) // the client that went away is the test's own
}

func refuse(w http.ResponseWriter, status, code int, message string) {
	w.WriteHeader(status)
	reply(w, map[string]any{"error_code": code, "message": message})
}

// Fail answers everything with a status from now on; 0 ends that.
func (r *Registry) Fail(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail = status
}

// Protect asks for a user and a password from now on.
func (r *Registry) Protect(user, password string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.user, r.password = user, password
}

// Asked tells how often a question was put: a method and a path.
func (r *Registry) Asked(what string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked[what]
}

// Add gives a subject another version, a schema of a type, AVRO or PROTOBUF, and returns its id.
func (r *Registry) Add(subject, typ, schema string, refs ...Reference) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.add(subject, entry{schema, typ, refs})
}

// add gives a subject another version. It is called with the lock held.
func (r *Registry) add(subject string, e entry) int {
	r.schemas = append(r.schemas, e)
	id := first + len(r.schemas) - 1
	r.subjects[subject] = append(r.subjects[subject], id)
	return id
}

// find returns the version of a subject that holds a schema's very text, and its id; 0 if none does.
func (r *Registry) find(subject string, e entry) (version, id int) {
	for i, id := range r.subjects[subject] {
		if have := r.schemas[id-first]; have.Schema == e.Schema && have.Type == e.Type {
			return i + 1, id
		}
	}
	return 0, 0
}

// posted reads the schema of a request.
func posted(w http.ResponseWriter, req *http.Request) (e entry, ok bool) {
	if err := json.NewDecoder(req.Body).Decode(&e); err != nil {
		refuse(w, http.StatusUnprocessableEntity, 42201, "Invalid schema: "+err.Error())
		return e, false
	}
	if e.Type == "" {
		e.Type = "AVRO"
	}
	return e, true
}

func (r *Registry) lookUp(w http.ResponseWriter, req *http.Request) {
	e, ok := posted(w, req)
	if !ok {
		return
	}
	subject := req.PathValue("subject")
	if r.subjects[subject] == nil {
		refuse(w, http.StatusNotFound, 40401, "Subject '"+subject+"' not found.")
		return
	}
	version, id := r.find(subject, e)
	if id == 0 {
		refuse(w, http.StatusNotFound, 40403, "Schema not found")
		return
	}
	r.describe(w, subject, version, id)
}

// register gives a subject another version, unless one holds the schema already.
func (r *Registry) register(w http.ResponseWriter, req *http.Request) {
	e, ok := posted(w, req)
	if !ok {
		return
	}
	_, id := r.find(req.PathValue("subject"), e)
	if id == 0 {
		id = r.add(req.PathValue("subject"), e)
	}
	reply(w, map[string]int{"id": id})
}

func (r *Registry) byID(w http.ResponseWriter, req *http.Request) {
	id, err := strconv.Atoi(req.PathValue("id"))
	if err != nil || id < first || id >= first+len(r.schemas) {
		refuse(w, http.StatusNotFound, 40403, "Schema "+req.PathValue("id")+" not found")
		return
	}
	reply(w, r.schemas[id-first])
}

func (r *Registry) byVersion(w http.ResponseWriter, req *http.Request) {
	subject := req.PathValue("subject")
	ids := r.subjects[subject]
	version, err := strconv.Atoi(req.PathValue("version"))
	if err != nil || version < 1 || version > len(ids) {
		refuse(w, http.StatusNotFound, 40401, "Subject "+subject+" not found")
		return
	}
	r.describe(w, subject, version, ids[version-1])
}

func (r *Registry) describe(w http.ResponseWriter, subject string, version, id int) {
	reply(w, struct {
		Subject string `json:"subject"`
		Version int    `json:"version"`
		ID      int    `json:"id"`
		entry
	}{subject, version, id, r.schemas[id-first]})
}

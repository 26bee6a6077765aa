package expr
import ("testing";"fmt";"github.com/tridentd/tridentd/internal/vec")
func TestSmoke(t *testing.T){
 s:=NewScope(); s.Set("x",Field{Int,0}); s.Set("s",Field{String,1}); s.Set("al.name",Field{String,1}); s.Set("a",Field{Any,2}); s.Set("f",Field{Float,3}); s.Set("d",Field{Decimal,4}); s.Set("t",Field{Time,5})
 for _,src:=range []string{"x + 1","x +","s + 1","lower(x)","split(lower(s), \" \")","x > 1 && s == 'a' || x == nil","al.nam","al","y","lowr(s)","sum(x)","a + 1","a > 1.5","lower(a)","abs(a)","min(x,2,3)","coalesce(x, 1)","x ? 1 : 2","d > 99.95","d + f","d * 1.5","t > '2013'","s in ['a','b']","s in [1]","x in s","(x","x = 1","1 < x < f","t == timestamp('2013-01-01T00:00:00Z')", "truncate(t,'1h')","truncate(t,s)","s matches 'a('","x[0]","split(s,',')[0]","len([1,2])","1/0","9223372036854775808","x ?? s","x ?? f","[]","{}","x if 1","::len(s)","s.foo()","x | abs()","map(s, # > 1)","hash(x)","$env['x']","$env", "not x", "s not in ['a']", "s not contains 'a'", "let a = 1; a", "min(x)", "sqrt(x)", "now()", "rand() > 0.5", "date(t)", "é + y", "x ^ 2", "x..2", "nil", "nil + 1", "x > nil", "s == 5", "count()"} {
  e,err:=Parse(src); if err!=nil { fmt.Println(src,"=> PARSE",err); continue}
  ty,errs:=e.Check(s)
  if errs!=nil {fmt.Println(src,"=> ERR",errs); continue}
  _,err=Compile(e,s)
  fmt.Println(src,"=>",ty.Type,ty.Nullable,err,e.Fields())
 }
 _ = vec.Null
}

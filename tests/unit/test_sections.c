/* Readers of the sections of a document: each row sets one member of a good document to a value, which is
 * refused with the member's pointer and these words, or read and written as it is. */
#include "fork_plan.h"
#include "plan/plan_json.h"

#define OK(section, at, value) { section, at, value, NULL, NULL }
#define NO(section, at, value, where, says) { section, at, value, where, says }
static const struct row { const char *section, *at, *value, *where, *says;
} rows[] = {
	NO("graph", "/batch", "0", "/batch", "0 is below 1"),
	NO("graph", "/dtype", "\"f8\"", "/dtype", "f8"),
	NO("graph", "/ops/0/id", "1", "/ops/0/id", "position"),
	NO("graph", "/tensors/1/id", "2", "/tensors/1/id", "position"),
	NO("graph", "/tensors/1/name", "\"\"", "/tensors/1", "tensor without a name"),
	NO("graph", "/tensors/1/kind", "\"wieght\"", "/tensors/1/kind", "wieght"),
	NO("graph", "/tensors/1/layout", "\"channels-last\"", "/tensors/1",
	   "channels-last needs 3 dimensions or more"),
	NO("graph", "/tensors/1/shape", "[1,1,1,1,1,1,1,1,1]", "/tensors/1/shape", "9 dimensions; at most 8"),
	OK("graph", "/tensors/1/shape", "[1,1,1,1,1,1,1,1]"),
	NO("graph", "/tensors/1/shape", "[2,-1]", "/tensors/1/shape/1", "-1 is below 0"),
	NO("graph", "/tensors/1/shape", "[2,\"M\"]", "/tensors/1/shape/1", "'M' is no dimension"),
	NO("graph", "/tensors/1/shape", "[\"N*2\"]", "/tensors/1/shape/0", "'N*2' is no dimension"),
	NO("graph", "/tensors/1/shape", "[\"2*N1\"]", "/tensors/1/shape/0", "'2*N1' is no dimension"),
	NO("graph", "/tensors/1/shape", "[\"N+1x\"]", "/tensors/1/shape/0", "'N+1x' is no dimension"),
	NO("graph", "/tensors/1/shape", "[\"N+\"]", "/tensors/1/shape/0", "'N+' is no dimension"),
	NO("graph", "/tensors/1/shape", "[\"2*M\"]", "/tensors/1/shape/0", "'2*M' is no dimension"),
	NO("graph", "/tensors/1/shape", "[\" 2*N\"]", "/tensors/1/shape/0", "' 2*N' is no dimension"),
	NO("graph", "/tensors/1/shape", "[\"99999999999999999999*N\"]", "/tensors/1/shape/0",
	   "is no dimension"),
	NO("graph", "/tensors/1/shape", "[\"-1*N\"]", "/tensors/1/shape/0", "is negative at batch 8"),
	NO("graph", "/tensors/1/shape", "[\"N-9\"]", "/tensors/1/shape/0", "is negative at batch 8"),
	OK("graph", "/tensors/1/shape", "[\"N-8\"]"),
	OK("graph", "/tensors/1/shape", "[\"N\",\"64*N+1\",\"2*N-3\",\"3*N\",5]"),
	NO("graph", "/tensors/1/shape", "[4000000000000,4000000]", "/tensors/1", "tensor 'w0' is too large"),
	NO("graph", "/tensors/1/size_per_sample_bytes", "501", "/tensors/1",
	   "size_bytes is less than size_per_sample_bytes times the batch"),
	OK("graph", "/tensors/1/size_per_sample_bytes", "500"),
	NO("graph", "/tensors/1/size_bytes", "-1", "/tensors/1/size_bytes", "-1 is below 0"),
	NO("graph", "/tensors/1/home", "7", "/tensors/1/home", "7 is above 6"),
	OK("graph", "/tensors/1/home", "6"),
	NO("graph", "/tensors/1/of", "14", "/tensors/1/of", "14 is above 13"),
	OK("graph", "/tensors/1/of", "13"),
	NO("graph", "/tensors/1/also", "[\"a\",1]", "/tensors/1/also/1", "a string is expected"),
	OK("graph", "/tensors/1/also", "[\"a\",\"b\"]"),
	NO("graph", "/tensors/1/samples", "{\"part\":2,\"of\":2}", "/tensors/1/samples/part", "2 is above 1"),
	NO("graph", "/tensors/1/samples", "{\"part\":0,\"of\":1}", "/tensors/1/samples/of", "1 is below 2"),
	OK("graph", "/tensors/1/samples", "{\"part\":1,\"of\":2}"),
	NO("graph", "/tensors/1/samples", "{\"part\":0,\"of\":16}", "",
	   "a batch of 8 samples is not shared out as its tensors say"),
	NO("graph", "/tensors/1/rule", "\"guess\"", "/tensors/1/rule", "guess"),
	NO("graph", "/tensors/1/value_per_sample", "[1]", "/tensors/1/value_per_sample",
	   "value_per_sample without value"),
	NO("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"constant\",\"dtype\":\"f32\",\"shape\":[2],\"value\":[1,2],"
	   "\"fill\":0}",
	   "/tensors/1/fill", "both fill and value"),
	NO("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"constant\",\"dtype\":\"f32\",\"shape\":[2],\"value\":[1]}",
	   "/tensors/1/value", "1 values where the shape needs 2"),
	NO("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"constant\",\"dtype\":\"f32\",\"shape\":[2],\"value\":1}",
	   "/tensors/1/value", "expected an array of values"),
	NO("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"constant\",\"dtype\":\"f32\",\"shape\":[2],\"value\":[1,"
	   "\"two\"]}",
	   "/tensors/1/value/1", "expected a number, found a string"),
	NO("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"constant\",\"dtype\":\"f32\",\"shape\":[\"N\"],\"value\":[1,"
	   "2]}",
	   "/tensors/1/value", "a shape that follows N cannot have values"),
	NO("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"constant\",\"dtype\":\"f32\",\"shape\":[4294967296,"
	   "4294967296],\"value\":[]}",
	   "/tensors/1/value", "values without a (sane) shape"),
	NO("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"constant\",\"dtype\":\"f32\",\"shape\":null,\"value\":[1]}",
	   "/tensors/1/value", "values without a (sane) shape"),
	NO("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"constant\",\"dtype\":\"bool\",\"shape\":[2],\"value\":[true,"
	   "false],\"value_per_sample\":[1,1]}",
	   "/tensors/1/value_per_sample", "only numbers follow N"),
	NO("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"constant\",\"dtype\":\"bool\",\"shape\":[2],\"value\":[true,"
	   "2]}",
	   "/tensors/1/value/1", "2 is above 1"),
	NO("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"constant\",\"dtype\":\"i8\",\"shape\":[2],\"value\":[127,"
	   "128]}",
	   "/tensors/1/value/1", "128"),
	NO("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"constant\",\"dtype\":\"i8\",\"shape\":[2],\"value\":[-128,-"
	   "129]}",
	   "/tensors/1/value/1", "-129"),
	NO("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"constant\",\"dtype\":\"u8\",\"shape\":[2],\"value\":[255,"
	   "256]}",
	   "/tensors/1/value/1", "256"),
	NO("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"constant\",\"dtype\":\"u16\",\"shape\":[2],\"value\":[65535,"
	   "65536]}",
	   "/tensors/1/value/1", "65536"),
	NO("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"constant\",\"dtype\":\"i16\",\"shape\":[2],\"value\":[32767,"
	   "-32769]}",
	   "/tensors/1/value/1", "-32769"),
	NO("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"constant\",\"dtype\":\"i32\",\"shape\":[2],\"value\":["
	   "2147483647,2147483648]}",
	   "/tensors/1/value/1", "2147483648"),
	NO("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"constant\",\"dtype\":\"u32\",\"shape\":[2],\"value\":["
	   "4294967295,\"4294967296\"]}",
	   "/tensors/1/value/1", "4294967296 is out of range"),
	NO("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"constant\",\"dtype\":\"i64\",\"shape\":[2],\"value\":[1,"
	   "\"9x\"]}",
	   "/tensors/1/value/1", "no integer"),
	NO("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"constant\",\"dtype\":\"i64\",\"shape\":[2],\"value\":[1,"
	   "\"9223372036854775808\"]}",
	   "/tensors/1/value/1", "no integer"),
	NO("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"constant\",\"dtype\":\"u64\",\"shape\":[2],\"value\":[1,\"-"
	   "1\"]}",
	   "/tensors/1/value/1", "no unsigned integer"),
	NO("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"constant\",\"dtype\":\"u64\",\"shape\":[2],\"value\":[1,"
	   "\"18446744073709551616\"]}",
	   "/tensors/1/value/1", "no unsigned integer"),
	NO("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"constant\",\"dtype\":\"u64\",\"shape\":[2],\"value\":[1,"
	   "\"5x\"]}",
	   "/tensors/1/value/1", "no unsigned integer"),
	OK("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"constant\",\"dtype\":\"f32\",\"shape\":[2],\"value\":[1.5,"
	   "\"nan\"]}"),
	OK("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"constant\",\"dtype\":\"f32\",\"shape\":[2],\"value\":["
	   "\"inf\",\"-inf\"]}"),
	OK("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"constant\",\"dtype\":\"f32\",\"shape\":[2],\"fill\":\"-"
	   "inf\"}"),
	OK("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"constant\",\"dtype\":\"f32\",\"shape\":[2],\"fill\":2.5}"),
	OK("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"constant\",\"dtype\":\"i8\",\"shape\":[2],\"value\":[127,-"
	   "128]}"),
	OK("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"constant\",\"dtype\":\"i16\",\"shape\":[2],\"value\":[32767,"
	   "-32768]}"),
	OK("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"constant\",\"dtype\":\"i32\",\"shape\":[2],\"value\":["
	   "2147483647,-2147483648]}"),
	OK("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"constant\",\"dtype\":\"u8\",\"shape\":[2],\"value\":[255,0]"
	   "}"),
	OK("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"constant\",\"dtype\":\"u16\",\"shape\":[2],\"value\":[65535,"
	   "0]}"),
	OK("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"constant\",\"dtype\":\"u32\",\"shape\":[2],\"value\":["
	   "4294967295,0]}"),
	OK("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"constant\",\"dtype\":\"u64\",\"shape\":[2],\"value\":["
	   "\"18446744073709551615\",7]}"),
	OK("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"constant\",\"dtype\":\"i64\",\"shape\":[2],\"value\":["
	   "\"9223372036854775807\",\"-9223372036854775808\"]}"),
	OK("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"constant\",\"dtype\":\"bool\",\"shape\":[2],\"value\":[true,"
	   "false]}"),
	OK("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"constant\",\"dtype\":\"i64\",\"shape\":[2],\"value\":[1,2],"
	   "\"value_per_sample\":[0,3]}"),
	OK("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"weight\",\"dtype\":\"f32\",\"shape\":[2],\"slice\":{\"of\":"
	   "\"w\",\"shape\":[6],\"axis\":0,\"units\":6,\"unit\":1,\"first\":2,\"count\":2}}"),
	OK("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"weight\",\"dtype\":\"f32\",\"shape\":[2],\"slice\":{\"of\":"
	   "\"w\",\"shape\":[6],\"axis\":0,\"units\":6,\"unit\":1,\"first\":4,\"count\":2}}"),
	NO("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"weight\",\"dtype\":\"f32\",\"shape\":[2],\"slice\":{\"of\":"
	   "\"w\",\"shape\":[6],\"axis\":0,\"units\":6,\"unit\":1,\"first\":5,\"count\":2}}",
	   "/tensors/1/slice", "'w0' is no such part of 'w'"),
	NO("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"weight\",\"dtype\":\"f32\",\"shape\":[2],\"slice\":{\"of\":"
	   "\"w\",\"shape\":[6],\"axis\":0,\"units\":6,\"unit\":1,\"first\":2,\"count\":3}}",
	   "/tensors/1/slice", "'w0' is no such part of 'w'"),
	NO("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"weight\",\"dtype\":\"f32\",\"shape\":[2],\"slice\":{\"of\":"
	   "\"w\",\"shape\":[6,1],\"axis\":0,\"units\":6,\"unit\":1,\"first\":2,\"count\":2}}",
	   "/tensors/1/slice/shape", "2 dimensions where the tensor has 1"),
	NO("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"weight\",\"dtype\":\"f32\",\"shape\":[2],\"slice\":{\"of\":"
	   "\"w\",\"shape\":[0],\"axis\":0,\"units\":6,\"unit\":1,\"first\":2,\"count\":2}}",
	   "/tensors/1/slice/shape/0", "0 is below 1"),
	NO("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"weight\",\"dtype\":\"f32\",\"shape\":[2],\"slice\":{\"of\":"
	   "\"w\",\"shape\":[6],\"axis\":1,\"units\":6,\"unit\":1,\"first\":2,\"count\":2}}",
	   "/tensors/1/slice/axis", "1 is above 0"),
	NO("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"weight\",\"dtype\":\"f32\",\"shape\":[2],\"slice\":{\"of\":"
	   "\"w\",\"shape\":[6],\"axis\":0,\"units\":0,\"unit\":1,\"first\":2,\"count\":2}}",
	   "/tensors/1/slice/units", "0 is below 1"),
	NO("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"weight\",\"dtype\":\"f32\",\"shape\":[2],\"slice\":{\"of\":"
	   "\"w\",\"shape\":[6],\"axis\":0,\"units\":6,\"unit\":0,\"first\":2,\"count\":2}}",
	   "/tensors/1/slice/unit", "0 is below 1"),
	NO("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"weight\",\"dtype\":\"f32\",\"shape\":[2],\"slice\":{\"of\":"
	   "\"w\",\"shape\":[6],\"axis\":0,\"units\":6,\"unit\":1,\"first\":-1,\"count\":2}}",
	   "/tensors/1/slice/first", "-1 is below 0"),
	NO("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"weight\",\"dtype\":\"f32\",\"shape\":[2],\"slice\":{\"of\":"
	   "\"w\",\"shape\":[6],\"axis\":0,\"units\":6,\"unit\":1,\"first\":2,\"count\":0}}",
	   "/tensors/1/slice/count", "0 is below 1"),
	NO("graph", "/tensors/1",
	   "{\"id\":1,\"name\":\"w0\",\"kind\":\"weight\",\"dtype\":\"f32\",\"shape\":[\"N\"],\"slice\":{"
	   "\"of\":\"w\",\"shape\":[6],\"axis\":0,\"units\":6,\"unit\":1,\"first\":2,\"count\":2}}",
	   "/tensors/1/slice", "is no such part of 'w'"),
	NO("graph", "/ops/0/attributes", "{\"a\":true}", "/ops/0/attributes/a",
	   "no attribute: expected a number, text, an array or an object"),
	NO("graph", "/ops/0/attributes", "{\"a\":[1,\"x\"]}", "/ops/0/attributes/a/1", "no integer"),
	NO("graph", "/ops/0/attributes", "{\"a\":[1.5,\"x\"]}", "/ops/0/attributes/a/1",
	   "expected a number, found a string"),
	NO("graph", "/ops/0/attributes", "{\"a\":{\"int\":\"1x\"}}", "/ops/0/attributes/a/int", "no integer"),
	NO("graph", "/ops/0/attributes", "{\"a\":{\"real\":\"x\"}}", "/ops/0/attributes/a/real",
	   "expected a number, found a string"),
	NO("graph", "/ops/0/attributes", "{\"a\":{\"dtype\":\"f32\",\"shape\":[2],\"value\":[1]}}",
	   "/ops/0/attributes/a/value", "1 values where the shape needs 2"),
	NO("graph", "/ops/0/attributes", "{\"a\":{\"dtype\":\"f32\",\"shape\":[-1],\"value\":[]}}",
	   "/ops/0/attributes/a/shape/0", "-1 is below 0"),
	NO("graph", "/ops/0/attributes",
	   "{\"a\":{\"dtype\":\"f32\",\"shape\":[4294967296,4294967296],\"value\":[]}}",
	   "/ops/0/attributes/a/shape", "too large"),
	NO("graph", "/ops/0/attributes",
	   "{\"a\":{\"dtype\":\"f32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"value\":[1]}}",
	   "/ops/0/attributes/a/shape", "9 dimensions; at most 8"),
	OK("graph", "/ops/0/attributes",
	   "{\"a\":1,\"b\":1.5,\"c\":\"t\",\"d\":[1,2],\"e\":[1.5,2.0],\"f\":{\"dtype\":\"i64\",\"shape\":[1]"
	   ",\"value\":[3]},\"g\":{\"real\":\"inf\"},\"h\":{\"int\":\"9223372036854775807\"},\"i\":[0.5,"
	   "\"nan\"]}"),
	NO("graph", "/ops/0/inputs", "[0,14]", "/ops/0/inputs/1", "no tensor 14"),
	NO("graph", "/ops/0/phase", "\"forwards\"", "/ops/0/phase", "forwards"),
	NO("graph", "/ops/0/phase", "\"update\"", "/ops/1", "op 'f1' stands after one of a later phase"),
	NO("graph", "/ops/0/colocate", "7", "/ops/0/colocate", "7 is above 6"),
	NO("graph", "/ops/0/of", "-2", "/ops/0/of", "-2 is below 0"),
	NO("graph", "/ops/0/flop", "-1", "/ops/0/flop", "-1 is below 0"),
	NO("graph", "/ops/6/outputs", "[0]", "/ops/6/outputs/0",
	   "tensor 'x0' is fed or constant and cannot be an output"),
	NO("graph", "/inputs", "[14]", "/inputs/0", "no tensor 14"),
	NO("graph", "/outputs", "[-1]", "/outputs/0", "-1 is below 0"),
	NO("graph", "/loss", "14", "/loss", "14 is above 13"),
	NO("graph", "/model", "{\"path\":\"/m\",\"sha256\":\"ABC\"}", "/model/sha256",
	   "not a SHA-256: 64 hex digits"),
	OK("graph", "/model",
	   "{\"path\":\"/"
	   "m\",\"sha256\":\"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\"}"),
	NO("graph", "/model", "{\"path\":\"/m\",\"format\":\"pt\"}", "/model/format", "pt"),
	NO("cluster", "/link_model", "\"bus\"", "/link_model",
	   "no link model 'bus'; there are routes and port"),
	OK("cluster", "/link_model", "\"port\""),
	NO("cluster", "/nodes/0/kind", "\"gpu\"", "/nodes/0/kind", "gpu"),
	NO("cluster", "/nodes/0/group", "\"h9\"", "/nodes/0/group", "h9"),
	NO("cluster", "/nodes/0/id", "1", "/nodes/0/id", "node ids count from 0: 0 is expected here"),
	NO("cluster", "/nodes/0/speed", "0", "/nodes/0/speed", "0 is below"),
	NO("cluster", "/groups/1/parent", "\"h9\"", "/groups/1/parent", "h9"),
	NO("cluster", "/groups/1/up", "\"l9\"", "/groups/1/up", "l9"),
	NO("cluster", "/links/0/latency_s", "-1", "/links/0/latency_s", "-1 is below 0"),
	NO("cluster", "/links/0/bandwidth_Bps", "0", "/links/0/bandwidth_Bps", "0 is below 0.001"),
	NO("cluster", "/kinds/0/threads", "0", "/kinds/0/threads", "0 is below 1"),
	NO("cluster", "/kinds/0/efficiency", "{\"conv\":1}", "/kinds/0/efficiency/conv",
	   "an object with flops and bandwidth is expected"),
	NO("cluster", "/kinds/0/efficiency", "{\"conv\":{\"flops\":1.5,\"bandwidth\":1}}",
	   "/kinds/0/efficiency/conv/flops", "1.5 is above 1"),
	OK("cluster", "/kinds/0/efficiency", "{\"conv\":{\"flops\":0.5,\"bandwidth\":1}}"),
	NO("cluster", "/hosts", "[{\"name\":\"h0\",\"address\":\"h0\"}]", "/hosts",
	   "node 2 is on host 'h1', which is not in the list"),
	NO("cluster", "/hosts", "[{\"name\":\"h0\",\"address\":\"a;b\"},{\"name\":\"h1\"}]", "/hosts/0",
	   "letters, digits, dots, colons, - and _ are expected, not 'a;b'"),
	OK("cluster", "/memories",
	   "[{\"name\":\"m\",\"group\":\"h0\",\"class\":\"dram\",\"bytes\":1000},{\"name\":\"f\",\"group\":"
	   "\"h0\",\"class\":\"file\",\"folder\":\"/f\",\"bytes\":1000}]"),
	NO("cost", "/batches", "[]", "/batches", "1 to 64 batch sizes are expected"),
	NO("cost", "/batches", "[8,8,2,1]", "/batches/1", "batch sizes must descend"),
	NO("cost", "/batches", "[8,4,2,0]", "/batches/3", "0 is below 1"),
	NO("cost", "/rows/0/ops", "[0,1,2,3,4,7]", "/rows/0/ops/5", "7 is above 6"),
	NO("cost", "/rows/0/ops", "[0,1,2,3,4,6]", "/rows/1/ops/0", "op 6 has costs already"),
	NO("cost", "/rows/0/ops", "[0,1,2,3,4,4]", "/rows/0/ops/5", "op 4 has costs already"),
	NO("cost", "/rows/0/ops", "[0,1,2,3,4]", "/rows", "no costs for op 5, 'f5'"),
	NO("cost", "/rows/0/time_s", "{}", "/rows/0/time_s", "no times for the kind 'cpu'"),
	NO("cost", "/rows/0/time_s/cpu", "[1,1,1]", "/rows/0/time_s/cpu", "3 times for 4 batch sizes"),
	NO("cost", "/rows/0/time_s/cpu", "[1,1,1,-1]", "/rows/0/time_s/cpu/3", "-1 is below 0"),
	NO("cost", "/rows/0", "1", "/rows/0", "an object is expected"),
	NO("cost", "/kinds", "[\"gpu\"]", "/kinds", "the cluster's kind 'cpu' has no costs"),
	OK("cost", "/rows/0/time_s/cpu", "null"),
	NO("plan", "/placement/0", "3", "/placement/0", "3 is above 2"),
	NO("plan", "/placement/9", "0", "/placement", "no op '9': the graph has 7 ops"),
	NO("plan", "/placement/01", "0", "/placement", "no op '01': the graph has 7 ops"),
	NO("plan", "/nodes", "[{},{}]", "/nodes", "2 nodes, the cluster has 3"),
	NO("plan", "/nodes/0", "1", "/nodes/0", "must be an object"),
	NO("plan", "/nodes/0/order/0", "[7,0]", "/nodes/0/order/0", "no op 7: the graph has 7 ops"),
	NO("plan", "/nodes/0/order/0", "[4,1]", "/nodes/0/order/0", "no micro-batch 1 of 1"),
	NO("plan", "/nodes/0/order/0", "[4]", "/nodes/0/order/0", "must be an array of 2 numbers"),
	NO("plan", "/nodes/0/memories", "[1]", "/nodes/0/memories/0", "must be an object"),
	NO("plan", "/nodes/0/memories", "[{\"name\":\"m\",\"weights\":-1}]", "/nodes/0/memories/0/weights",
	   "-1 is below 0"),
	NO("plan", "/pins", "{\"f9\":0}", "/pins", "no op 'f9' to pin"),
	NO("plan", "/pins", "{\"f0\":3}", "/pins/f0", "3 is above 2"),
	OK("plan", "/pins", "{\"f0\":2}"),
	NO("plan", "/exclude", "[3]", "/exclude/0", "3 is above 2"),
	NO("plan", "/priority", "\"rank\"", "/priority",
	   "no priority 'rank'; there are graph, upward-rank and given"),
	OK("plan", "/priority", "\"upward-rank\""),
	NO("plan", "/rewrites", "\"some\"", "/rewrites", "no 'some'; there are keep-affinity and all"),
	OK("plan", "/rewrites", "\"all\""),
	NO("plan", "/staleness", "\"old\"", "/staleness",
	   "no rule 'old'; there are none, stash, 2bw and predict"),
	NO("plan", "/recompute", "{\"auto\":true,\"patterns\":[\"x\"]}", "/recompute",
	   "wants either \"auto\": true or patterns of names"),
	NO("plan", "/replicas", "[[0],[1],[2],[-1]]", "/replicas", "4 replicas over 3 nodes"),
	NO("plan", "/replicas", "[[0],1]", "/replicas/1", "must be an array of nodes"),
	NO("plan", "/replicas", "[[0,1,2,-1]]", "/replicas/0", "4 nodes, the cluster has 3"),
	NO("plan", "/replicas", "[[0],[0]]", "/replicas/1/0", "node 0 has a part already"),
	NO("plan", "/replicas", "[[1],[0]]", "/replicas/0",
	   "replica 0: a node plays its own part in the first one"),
	NO("plan", "/replicas", "[[0],[1,2]]", "/replicas/1", "replica 1 has other parts than replica 0"),
	NO("plan", "/replicas", "[[0],[3]]", "/replicas/1/0", "3 is above 2"),
	NO("plan", "/split", "\"speed\"", "/split", "speed"),
	NO("plan", "/timeline", "[[],[]]", "/timeline", "2 time-lines for 3 nodes"),
	NO("plan", "/timeline", "[1,[],[]]", "/timeline/0", "must be an array"),
	NO("plan", "/timeline", "[[[7,0,0,1]],[],[]]", "/timeline/0/0", "no op 7: the graph has 7 ops"),
	NO("plan", "/timeline", "[[[6,0,0]],[],[]]", "/timeline/0/0",
	   "must be an array of 4 numbers, and true for a second run"),
	NO("plan", "/timeline", "[[[6,0,0,1,false]],[],[]]", "/timeline/0/0",
	   "must be an array of 4 numbers, and true for a second run"),
	NO("plan", "/timeline", "[[[6,-2,0,1]],[],[]]", "/timeline/0/0/1", "-2 is below -1"),
	OK("plan", "/timeline", "[[[6,-1,0,1]],[],[[5,0,0.5,1.5,true]]]"),
	NO("report", "/nodes/0", "1", "/nodes/0", "must be an object"),
	NO("report", "/nodes/0/waits", "{\"starving\":1}", "/nodes/0/waits", "starving"),
	NO("report", "/nodes/0/graphs", "1e10", "/nodes/0/graphs", "10000000000 is above 1000000000"),
	NO("report", "/ops", "[1]", "/ops/0", "must be an object"),
	NO("report", "/ops", "[{\"op\":0,\"node\":3}]", "/ops/0/node", "3 is above 2"),
	OK("report", "/ops", "[{\"op\":0,\"node\":2,\"time_s\":1.5,\"predicted_s\":2.5}]"),
	NO("report", "/delays", "[1]", "/delays/0", "must be an object"),
	NO("report", "/delays", "[{\"weight\":\"w\",\"node\":3,\"least\":0,\"most\":1}]", "/delays/0/node",
	   "3 is above 2"),
	OK("report", "/delays", "[{\"weight\":\"w\",\"node\":2,\"least\":0,\"most\":1}]"),
	NO("report", "/losses", "[1,\"x\"]", "/losses/1", "expected a number, found a string"),
	OK("report", "/losses", "[1.5,null,2.5]"),
	NO("report", "/allreduce", "{\"sums\":[{\"part\":0,\"class\":\"tiny\",\"tensors\":1,\"bytes\":4}]}",
	   "/allreduce/sums/0", "no class of sums 'tiny'"),
	NO("report", "/allreduce", "{\"sums\":[{\"part\":-1,\"class\":\"small\",\"tensors\":1,\"bytes\":4}]}",
	   "/allreduce/sums/0/part", "-1 is below 0"),
	NO("report", "/allreduce", "{\"classes\":{\"small\":{\"bytes\":-1}}}",
	   "/allreduce/classes/small/bytes", "-1 is below 0"),
	NO("report", "/feed", "{\"bytes\":-1}", "/feed/bytes", "-1 is below 0"),
	NO("report", "/communication", "{\"bytes\":-1}", "/communication/bytes", "-1 is below 0"),
	NO("report", "/evaluations", "[1]", "/evaluations/0", "must be an object"),
	NO("report", "/evaluations", "[{\"step\":-1}]", "/evaluations/0/step", "-1 is below 0"),
	NO("report", "/evaluations", "[{\"step\":1,\"accuracy\":1.5}]", "/evaluations/0/accuracy",
	   "1.5 is above 1"),
	OK("report", "/evaluations", "[{\"step\":1,\"test_loss\":0.5,\"accuracy\":0.25,\"time_s\":3.5}]"),
	NO("report", "/events", "[1]", "/events/0", "must be an object"),
	NO("report", "/timeline", "[[],[]]", "/timeline", "2 time-lines for 3 nodes"),
	NO("report", "/accuracy", "1.5", "/accuracy", "1.5 is above 1"),
	NO("report", "/micro_batches", "0", "/micro_batches", "0 is below 1"),
};

/* Sets the member at `path` of v. */
static void set(json_t *v, const char *path, json_t *value)
{
	char text[100], *part, *next;

	snprintf(text, sizeof text, "%s", path);
	for (part = strtok(text, "/"); (next = strtok(NULL, "/")); part = next)
		v = json_is_array(v) ? json_array_get(v, (size_t)atoi(part)) : json_object_get(v, part);
	if (json_is_array(v))
		assert(!json_array_set_new(v, (size_t)atoi(part), value));
	else
		assert(!json_object_set_new(v, part, value));
}

/* Whether v has all that `part` has: members beside them may stand, numbers have one value. */
static bool has(const json_t *v, const json_t *part)
{
	const char *key;
	json_t *x;

	if (json_is_number(part))
		return json_is_number(v) && json_number_value(v) == json_number_value(part);
	if (json_is_object(part)) {
		json_object_foreach((json_t *)(uintptr_t)part, key,
				    x) if (!has(json_object_get(v, key), x)) return false;
		return true;
	}
	for (size_t i = 0; i < json_array_size(part); i++)
		if (!has(json_array_get(v, i), json_array_get(part, i)))
			return false;
	return json_is_array(part) ? json_is_array(v) && json_array_size(v) == json_array_size(part) :
				     json_equal(v, part);
}

static const json_t *get(const json_t *v, const char *path)
{
	char text[100];

	snprintf(text, sizeof text, "%s", path);
	for (const char *part = strtok(text, "/"); part; part = strtok(NULL, "/"))
		v = json_is_array(v) ? json_array_get(v, (size_t)atoi(part)) : json_object_get(v, part);
	return v;
}

/* Reads the section and writes it again: *back, NULL where it is refused. */
static int read_graph(const struct fork *f, const struct dlb_doc *d, json_t **back, struct dlb_error *err)
{
	struct dlb_graph g;
	const int rc = dlb_graph_read(d, &g, err);

	(void)f;
	if (!rc) {
		*back = dlb_graph_write(&g);
		dlb_graph_release(&g);
	}
	return rc;
}

static int read_cluster(const struct fork *f, const struct dlb_doc *d, json_t **back, struct dlb_error *err)
{
	struct dlb_cluster c;
	const int rc = dlb_cluster_read(d, &c, err);

	(void)f;
	if (!rc) {
		*back = dlb_cluster_write(&c);
		dlb_cluster_release(&c);
	}
	return rc;
}

static int read_cost(const struct fork *f, const struct dlb_doc *d, json_t **back, struct dlb_error *err)
{
	struct dlb_cost c;
	const int rc = dlb_cost_read(d, &f->g, &f->cl, &c, err);

	if (!rc) {
		*back = dlb_cost_write(&c);
		dlb_cost_release(&c);
	}
	return rc;
}

static int read_plan(const struct fork *f, const struct dlb_doc *d, json_t **back, struct dlb_error *err)
{
	struct dlb_plan p;
	const int rc = dlb_plan_read(d, &f->c, &p, NULL, err);

	if (!rc) {
		*back = dlb_plan_write(&p);
		dlb_plan_release(&p);
	}
	return rc;
}

static int read_report(const struct fork *f, const struct dlb_doc *d, json_t **back, struct dlb_error *err)
{
	struct dlb_report r;
	const int rc = dlb_report_read(d, &r, err);

	(void)f;
	if (!rc) {
		*back = dlb_report_write(&r);
		dlb_report_release(&r);
	}
	return rc;
}

static const struct reader {
	const char *section;
	int (*read)(const struct fork *f, const struct dlb_doc *d, json_t **back, struct dlb_error *err);
} readers[] = { { "graph", read_graph },
		{ "cluster", read_cluster },
		{ "cost", read_cost },
		{ "plan", read_plan },
		{ "report", read_report } };

static bool holds(const struct row *row, const struct fork *f, const struct dlb_doc *d)
{
	struct dlb_error err = { .what = "" };
	const struct reader *r = readers;
	char where[200], line[900];
	json_t *back = NULL, *value = json_loads(row->value, JSON_DECODE_ANY, NULL);

	assert(value);
	while (strcmp(r->section, row->section))
		r++;
	json_t *was = json_incref(dlb_doc_section(d, row->section)), *section = json_deep_copy(was);
	set(section, row->at, json_incref(value));
	dlb_doc_put((struct dlb_doc *)(uintptr_t)d, row->section, section);
	const int rc = r->read(f, d, &back, &err);
	snprintf(where, sizeof where, "fork.json: /%s%s", row->section, row->where ? row->where : "");
	snprintf(line, sizeof line, "%s: %s", err.where, err.what);
	const bool good = row->says ? rc == -1 && err.status == 2 && !strncmp(line, where, strlen(where)) &&
					      strstr(err.what, row->says) && !strchr(line, '\n') :
				      !rc && has(get(back, row->at), value);
	if (!good) {
		char *text = rc || !get(back, row->at) ? NULL :
							 json_dumps(get(back, row->at), JSON_ENCODE_ANY);

		fprintf(stderr, "/%s%s %s: %s %s, expected %s %s\n", row->section, row->at, row->value,
			rc ? line : "written as",
			rc   ? "" :
			text ? text :
			       "nothing",
			row->says ? where : "it back", row->says ? row->says : "");
		free(text);
	}
	json_decref(back);
	json_decref(value);
	dlb_doc_put((struct dlb_doc *)(uintptr_t)d, row->section, was);
	return good;
}

int main(void)
{
	struct fork f;
	struct dlb_doc d;
	int wrong = 0, refused = 0;

	start(&f, &d, "cpu:2 host cpu:1");
	report_of(&d, 3e-3, (double[]){ 1e-3, 2e-3, 3e-3 }, 3);
	for (int i = 0; i < DLB_LEN(rows); i++) {
		wrong += !holds(&rows[i], &f, &d);
		refused += rows[i].says != NULL;
	}
	end(&f, &d);
	assert(IS(wrong, ==, 0));
	printf("test_sections: %d members, %d of them refused\n", DLB_LEN(rows), refused);
	return 0;
}

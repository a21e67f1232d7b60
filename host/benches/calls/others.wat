;; The kinds of which policies/ has no component, with a minimum of work: what remains is the cost of the call. The
;; functions have the names that sdk/rust gives them, and results are 0 or empty.
(module $others
  (memory (export "memory") 16)
  (global $top (mut i32) (i32.const 524288))

  ;; 16: description. Name, version, about; kinds, columns, events; whether it has scores; parameters.
  (data (i32.const 16)
    "\00\01\00\00" "\06\00\00\00" "\10\01\00\00" "\05\00\00\00" "\00\00\00\00" "\00\00\00\00"
    "\c0\02\00\00" "\05\00\00\00" "\f0\02\00\00" "\02\00\00\00" "\00\00\00\00" "\00\00\00\00"
    "\00" "\00" "\00\00"
    "\00\00\00\00" "\00\00\00\00")
  (data (i32.const 256) "others")
  (data (i32.const 272) "1.0.0")
  (data (i32.const 320) "routing-filter")
  (data (i32.const 336) "drain")
  (data (i32.const 352) "placement")
  (data (i32.const 368) "kv-cache")
  (data (i32.const 384) "disaggregation")
  (data (i32.const 400) "queue-depth")
  (data (i32.const 416) "in-flight")
  ;; 704: the kinds. 752: the columns.
  (data (i32.const 704)
    "\40\01\00\00" "\0e\00\00\00" "\50\01\00\00" "\05\00\00\00" "\60\01\00\00" "\09\00\00\00"
    "\70\01\00\00" "\08\00\00\00" "\80\01\00\00" "\0e\00\00\00")
  (data (i32.const 752) "\90\01\00\00" "\0b\00\00\00" "\a0\01\00\00" "\09\00\00\00")
  ;; 800: an empty list. 816: ok. 832: no index. 848: a choice. 864: a list of zeros at 131072.

  (func $realloc (export "cabi_realloc")
    (param $old i32) (param $old_size i32) (param $align i32) (param $size i32) (result i32)
    (local $at i32)
    (local.set $at
      (i32.and
        (i32.add (global.get $top) (i32.sub (local.get $align) (i32.const 1)))
        (i32.sub (i32.const 0) (local.get $align))))
    (global.set $top (i32.add (local.get $at) (local.get $size)))
    (local.get $at))

  (func (export "blis_input") (param $size i32) (result i32)
    (i32.const 262144))

  (func (export "blis:policy/plugin@1.1.0#describe") (result i32)
    (i32.const 16))

  (func (export "blis:policy/plugin@1.1.0#configure")
    (param i32) (param i32) (param i32) (param i32) (param i32) (param i32) (param i32) (param i32) (result i32)
    (global.set $top (i32.const 524288))
    (i32.const 816))

  (func (export "blis:policy/plugin@1.1.0#save") (result i32)
    (i32.const 800))

  (func (export "blis:policy/plugin@1.1.0#restore") (param i32) (param i32) (result i32)
    (i32.const 816))

  (func $zeros (param $count i32) (result i32)
    (i32.store (i32.const 864) (i32.const 131072))
    (i32.store (i32.const 868) (local.get $count))
    (i32.const 864))

  ;; Request, ages, and at 144 how many instances there are.
  (func (export "blis:policy/routing-filter@1.1.0#filter") (param $at i32) (result i32)
    (call $zeros (i32.load offset=144 (local.get $at))))

  (func (export "blis:policy/drain@1.1.0#drain")
    (param i64) (param f64) (param i32) (param i32) (param i32) (param i32) (param i32) (param i32)
    (param $replicas i32) (param $count i32) (result i32)
    (i32.const 0))

  (func (export "blis:policy/placement@1.1.0#placement")
    (param i64) (param i64) (param i32) (param i32) (param i32) (param i32)
    (param $nodes i32) (param $count i32) (result i32)
    (i32.const 832))

  (func (export "blis:policy/kv-cache@1.1.0#keep") (param i64) (param $chunks i32) (param $count i32) (result i32)
    (call $zeros (local.get $count)))

  (func (export "blis:policy/kv-cache@1.1.0#store-chunks")
    (param i64) (param i64) (param f64) (param i32) (param i32) (param $chunks i32) (param $count i32) (result i32)
    (call $zeros (local.get $count)))

  (func (export "blis:policy/kv-cache@1.1.0#load")
    (param i64) (param i64) (param i64) (param f64) (param i32) (param i32) (param i32) (param i32) (param i32)
    (param i32) (param i32) (param i32) (param i32) (param i32) (param i32) (param i32) (result i32)
    (i32.const 1))

  (func (export "blis:policy/disaggregation@1.1.0#disaggregate")
    (param i64) (param f64) (param i32) (param i32) (param i32) (param i32) (param i32) (param i32) (param i32)
    (param i32) (param i32) (param i32) (param i32) (param i32) (param i32) (param i32) (result i32)
    (i32.const 848))
)

//! Functions without their types, as the operator holds them.

use levada_state::descriptor::{BindError, Binder};

use super::context::{FlatMapContext, FunctionContext, KeyedContext};
use super::error::FunctionError;
use super::inner::Inner;
use super::output::Output;
use super::rows::Rows;
use super::traits::{
    BroadcastProcessFunction, CoFlatMapFunction, FiredTimers, FlatMapFunction, KeyedCoProcessFunction, KeyedProcessFunction,
};

/// What an operator does with any function. Contract: `bind` first, then `open`.
pub(crate) trait Function: Send {
    fn bind(&mut self, binder: &mut dyn Binder) -> Result<(), BindError>;
    fn open(&mut self, context: &FunctionContext, inner: &mut Inner) -> Result<(), FunctionError>;
    fn process(&mut self, input: usize, rows: Rows<'_>, inner: &mut Inner, out: &mut Output) -> Result<(), FunctionError>;
    fn on_timers(&mut self, timers: FiredTimers<'_>, inner: &mut Inner, out: &mut Output) -> Result<(), FunctionError>;
    fn snapshot(&mut self, _inner: &mut Inner) -> Result<(), FunctionError> {
        Ok(())
    }
    fn close(&mut self, inner: &mut Inner, out: &mut Output) -> Result<(), FunctionError>;
}

macro_rules! erased {
    ($(#[$doc:meta])* $name:ident<$function:ident>) => {
        $(#[$doc])*
        pub(super) struct $name<F: $function> {
            function: F,
            states: Option<F::States>,
        }

        impl<F: $function> $name<F> {
            pub(super) fn new(function: F) -> Self {
                Self { function, states: None }
            }

            fn parts(&mut self) -> (&mut F, &F::States) {
                (&mut self.function, self.states.as_ref().expect("an operator binds first"))
            }
        }
    };
}

erased!(
    /// A keyed process function.
    Keyed<KeyedProcessFunction>
);
erased!(
    /// A flat map.
    FlatMap<FlatMapFunction>
);
erased!(
    /// A co-flat map.
    CoFlatMap<CoFlatMapFunction>
);
erased!(
    /// A broadcast process function.
    Broadcast<BroadcastProcessFunction>
);
erased!(
    /// A keyed co-process function.
    Connected<KeyedCoProcessFunction>
);

/// What is the same in all functions that have a key.
macro_rules! keyed {
    () => {
        fn bind(&mut self, binder: &mut dyn Binder) -> Result<(), BindError> {
            self.states = Some(F::bind(binder)?);
            Ok(())
        }

        fn open(&mut self, context: &FunctionContext, _inner: &mut Inner) -> Result<(), FunctionError> {
            self.function.open(context)
        }

        fn on_timers(&mut self, timers: FiredTimers<'_>, inner: &mut Inner, out: &mut Output) -> Result<(), FunctionError> {
            let (function, states) = self.parts();
            function.on_timers(states, timers, &mut KeyedContext::new(inner), out)
        }

        fn close(&mut self, inner: &mut Inner, out: &mut Output) -> Result<(), FunctionError> {
            let (function, states) = self.parts();
            function.close(states, &mut KeyedContext::new(inner), out)
        }
    };
}

/// What is the same in all functions that have none.
macro_rules! unkeyed {
    () => {
        fn bind(&mut self, binder: &mut dyn Binder) -> Result<(), BindError> {
            self.states = Some(F::bind(binder)?);
            Ok(())
        }

        fn open(&mut self, context: &FunctionContext, inner: &mut Inner) -> Result<(), FunctionError> {
            let (function, states) = self.parts();
            function.open(states, &mut FlatMapContext::new(inner), context)
        }

        fn on_timers(&mut self, _timers: FiredTimers<'_>, _inner: &mut Inner, _out: &mut Output) -> Result<(), FunctionError> {
            unreachable!("a function without a key has no timers: its declaration would have been refused")
        }

        fn snapshot(&mut self, inner: &mut Inner) -> Result<(), FunctionError> {
            let (function, states) = self.parts();
            function.snapshot(states, &mut FlatMapContext::new(inner))
        }

        fn close(&mut self, inner: &mut Inner, out: &mut Output) -> Result<(), FunctionError> {
            let (function, states) = self.parts();
            function.close(states, &mut FlatMapContext::new(inner), out)
        }
    };
}

impl<F: KeyedProcessFunction> Function for Keyed<F> {
    keyed!();

    fn process(&mut self, _input: usize, rows: Rows<'_>, inner: &mut Inner, out: &mut Output) -> Result<(), FunctionError> {
        let (function, states) = self.parts();
        function.process(states, rows, &mut KeyedContext::new(inner), out)
    }
}

impl<F: FlatMapFunction> Function for FlatMap<F> {
    unkeyed!();

    fn process(&mut self, _input: usize, rows: Rows<'_>, inner: &mut Inner, out: &mut Output) -> Result<(), FunctionError> {
        let (function, states) = self.parts();
        function.flat_map(states, rows, &mut FlatMapContext::new(inner), out)
    }
}

impl<F: CoFlatMapFunction> Function for CoFlatMap<F> {
    unkeyed!();

    fn process(&mut self, input: usize, rows: Rows<'_>, inner: &mut Inner, out: &mut Output) -> Result<(), FunctionError> {
        let (function, states) = self.parts();
        let mut ctx = FlatMapContext::new(inner);
        if input == 0 { function.flat_map1(states, rows, &mut ctx, out) } else { function.flat_map2(states, rows, &mut ctx, out) }
    }
}

impl<F: BroadcastProcessFunction> Function for Broadcast<F> {
    keyed!();

    fn process(&mut self, input: usize, rows: Rows<'_>, inner: &mut Inner, out: &mut Output) -> Result<(), FunctionError> {
        let (function, states) = self.parts();
        if input == 0 {
            function.process(states, rows, &mut KeyedContext::new(inner), out)
        } else {
            function.process_broadcast(states, rows, &mut FlatMapContext::new(inner), out)
        }
    }
}

impl<F: KeyedCoProcessFunction> Function for Connected<F> {
    keyed!();

    fn process(&mut self, input: usize, rows: Rows<'_>, inner: &mut Inner, out: &mut Output) -> Result<(), FunctionError> {
        let (function, states) = self.parts();
        let mut ctx = KeyedContext::new(inner);
        if input == 0 { function.process1(states, rows, &mut ctx, out) } else { function.process2(states, rows, &mut ctx, out) }
    }
}

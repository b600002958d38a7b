//! The worker's handles.

use std::collections::HashMap;

use super::message::Handle;
use crate::{BackendError, GraphId, KvConfig, TensorDesc};

/// Why a request failed.
#[derive(Debug)]
pub(super) enum Fail {
    /// By itself.
    Error(BackendError),
    /// Because an earlier request failed whose result it needs.
    Consequence(BackendError),
}

impl From<BackendError> for Fail {
    fn from(error: BackendError) -> Fail {
        Fail::Error(error)
    }
}

enum Entry<T, K> {
    Tensor(T),
    Kv(K, KvConfig),
    Graph(GraphId, Vec<TensorDesc>),
    Poisoned,
}

/// Everything that the host has a handle for.
pub(super) struct Table<T, K> {
    entries: HashMap<Handle, Entry<T, K>>,
}

fn unknown(handle: Handle, what: &str) -> Fail {
    BackendError::invalid(format!(
        "handle {handle} is no {what} that lives here: it was never made, or is freed"
    ))
    .into()
}

fn poisoned(handle: Handle) -> Fail {
    Fail::Consequence(BackendError::invalid(format!(
        "handle {handle} has no value: the op that makes it failed"
    )))
}

impl<T, K> Table<T, K> {
    pub(super) fn new() -> Self {
        Table { entries: HashMap::new() }
    }

    /// Refuses handles that already name something, before the op that would make them runs.
    pub(super) fn vacant(&self, handles: &[Handle]) -> Result<(), Fail> {
        for (i, handle) in handles.iter().enumerate() {
            let taken = self.entries.get(handle).is_some_and(|e| !matches!(e, Entry::Poisoned));
            if taken || handles[..i].contains(handle) {
                return Err(BackendError::invalid(format!("handle {handle} is in use; free it first")).into());
            }
        }
        Ok(())
    }

    /// Marks results that will never be, unless the handle names something that lives.
    pub(super) fn poison(&mut self, handles: &[Handle]) {
        for handle in handles {
            self.entries.entry(*handle).or_insert(Entry::Poisoned);
        }
    }

    pub(super) fn add_tensor(&mut self, handle: Handle, tensor: T) {
        self.entries.insert(handle, Entry::Tensor(tensor));
    }

    pub(super) fn add_kv(&mut self, handle: Handle, kv: K, config: KvConfig) {
        self.entries.insert(handle, Entry::Kv(kv, config));
    }

    pub(super) fn add_graph(&mut self, handle: Handle, graph: GraphId, inputs: Vec<TensorDesc>) {
        self.entries.insert(handle, Entry::Graph(graph, inputs));
    }

    pub(super) fn tensor(&self, handle: Handle) -> Result<&T, Fail> {
        match self.entries.get(&handle) {
            Some(Entry::Tensor(tensor)) => Ok(tensor),
            Some(Entry::Poisoned) => Err(poisoned(handle)),
            _ => Err(unknown(handle, "tensor")),
        }
    }

    pub(super) fn tensors(&self, handles: &[Handle]) -> Result<Vec<&T>, Fail> {
        handles.iter().map(|&handle| self.tensor(handle)).collect()
    }

    pub(super) fn kv(&self, handle: Handle) -> Result<(&K, &KvConfig), Fail> {
        match self.entries.get(&handle) {
            Some(Entry::Kv(kv, config)) => Ok((kv, config)),
            Some(Entry::Poisoned) => Err(poisoned(handle)),
            _ => Err(unknown(handle, "KV store")),
        }
    }

    /// A graph, and what its inputs are.
    pub(super) fn graph(&self, handle: Handle) -> Result<(GraphId, &[TensorDesc]), Fail> {
        match self.entries.get(&handle) {
            Some(Entry::Graph(graph, inputs)) => Ok((*graph, inputs)),
            Some(Entry::Poisoned) => Err(poisoned(handle)),
            _ => Err(unknown(handle, "graph")),
        }
    }

    /// Takes a tensor out; `None` if the handle was poisoned, which frees it too.
    pub(super) fn take_tensor(&mut self, handle: Handle) -> Result<Option<T>, Fail> {
        match self.entries.remove(&handle) {
            Some(Entry::Tensor(tensor)) => Ok(Some(tensor)),
            Some(Entry::Poisoned) => Ok(None),
            other => {
                self.put_back(handle, other);
                Err(unknown(handle, "tensor"))
            }
        }
    }

    /// Takes a KV store out, as [`Table::take_tensor`].
    pub(super) fn take_kv(&mut self, handle: Handle) -> Result<Option<(K, KvConfig)>, Fail> {
        match self.entries.remove(&handle) {
            Some(Entry::Kv(kv, config)) => Ok(Some((kv, config))),
            Some(Entry::Poisoned) => Ok(None),
            other => {
                self.put_back(handle, other);
                Err(unknown(handle, "KV store"))
            }
        }
    }

    /// Takes a graph out, as [`Table::take_tensor`].
    pub(super) fn take_graph(&mut self, handle: Handle) -> Result<Option<GraphId>, Fail> {
        let graph = self.graph(handle).map(|(graph, _)| graph);
        match graph {
            Ok(graph) => {
                self.entries.remove(&handle);
                Ok(Some(graph))
            }
            Err(Fail::Consequence(_)) => {
                self.entries.remove(&handle);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn put_back(&mut self, handle: Handle, entry: Option<Entry<T, K>>) {
        if let Some(entry) = entry {
            self.entries.insert(handle, entry);
        }
    }

    /// Empties the table: everything that must be freed.
    pub(super) fn drain(&mut self) -> (Vec<T>, Vec<K>, Vec<GraphId>) {
        let (mut tensors, mut stores, mut graphs) = (Vec::new(), Vec::new(), Vec::new());
        for (_, entry) in self.entries.drain() {
            match entry {
                Entry::Tensor(tensor) => tensors.push(tensor),
                Entry::Kv(kv, _) => stores.push(kv),
                Entry::Graph(graph, _) => graphs.push(graph),
                Entry::Poisoned => {}
            }
        }
        (tensors, stores, graphs)
    }
}

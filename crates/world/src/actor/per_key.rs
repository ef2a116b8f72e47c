//! One worker per object, as a controller's queue gives: an object that changes while its worker is at it is looked at
//! again afterwards, and objects do not wait for each other.

use std::collections::BTreeSet;

use futures::{
    StreamExt,
    future::{BoxFuture, FutureExt},
    stream::FuturesUnordered,
};

use crate::{
    error::Result,
    inbox::{Inbox, Item},
};

/// Works for ever on what an inbox brings.
pub(crate) async fn work(
    actor: &'static str,
    inbox: &Inbox,
    on_change: impl Fn(&Item) -> Option<BoxFuture<'static, Result<()>>>,
) {
    let mut busy: BTreeSet<Item> = BTreeSet::new();
    let mut again: BTreeSet<Item> = BTreeSet::new();
    let mut running = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            Some((item, outcome)) = running.next(), if !running.is_empty() => {
                busy.remove(&item);
                if again.remove(&item) {
                    inbox.now(item.0, item.1.clone());
                }
                inbox.settle(actor, item, outcome);
            }
            item = inbox.next() => {
                if busy.contains(&item) {
                    again.insert(item);
                } else if let Some(worker) = on_change(&item) {
                    busy.insert(item.clone());
                    running.push(worker.map(move |outcome| (item, outcome)).boxed());
                }
            }
        }
    }
}

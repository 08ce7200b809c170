//! RocksDB's options, as they were measured: small files and a small first level keep what a small change writes small; what
//! is ingested is not compressed, what is compacted is.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use levada_common::config::RocksdbProfile;
use levada_state::cold::RowLayout;
use rocksdb::{
    BlockBasedOptions, Cache, CompactionDecision, DBCompressionType, DataBlockIndexType, LogLevel, Options, ReadOptions,
    SliceTransform, WriteBufferManager, WriteOptions,
};

use crate::shared::SharedMemory;

/// No entry is expired.
pub const NEVER_EXPIRED: i64 = i64::MIN;

/// Bloom bits a key.
const BLOOM_BITS: f64 = 10.0;

/// Files of level 0 that start a compaction.
const LEVEL_0_TRIGGER: i32 = 8;

/// Least and most bytes of the first level below level 0, and the part of the overlays' memory between them: about what level 0 has
/// when it is compacted, so that it is not rewritten for little.
const LEVEL_1_BYTES: (u64, u64) = (16 << 20, 512 << 20);
const LEVEL_1_PART: u64 = 8;

/// Bytes of a compacted file.
const FILE_BYTES: u64 = 8 << 20;

/// Bytes of a memtable, which only the fallback fills.
const MEMTABLE_BYTES: usize = 8 << 20;

/// What a profile changes.
struct Tuning {
    block_bytes: usize,
    readahead_bytes: usize,
    file_factor: u64,
    jobs: i32,
}

fn tuning(profile: RocksdbProfile) -> Tuning {
    match profile {
        RocksdbProfile::Default => Tuning { block_bytes: 16 << 10, readahead_bytes: 2 << 20, file_factor: 1, jobs: 2 },
        // Seeks cost: larger blocks and files.
        RocksdbProfile::SpinningDisk => Tuning { block_bytes: 64 << 10, readahead_bytes: 4 << 20, file_factor: 8, jobs: 2 },
        // Seeks are cheap and the disk takes several at once.
        RocksdbProfile::Flash => Tuning { block_bytes: 8 << 10, readahead_bytes: 1 << 20, file_factor: 1, jobs: 4 },
    }
}

/// Options of a database.
pub fn database(profile: RocksdbProfile, buffers: &WriteBufferManager, open_files: i32) -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_max_open_files(open_files);
    options.set_write_buffer_manager(buffers);
    options.set_max_background_jobs(tuning(profile).jobs);
    options.set_compaction_readahead_size(tuning(profile).readahead_bytes);
    options.set_log_level(LogLevel::Warn);
    options.set_keep_log_file_num(1);
    options.set_max_log_file_size(1 << 20);
    options.set_stats_dump_period_sec(0);
    options.set_stats_persist_period_sec(0);
    options.set_skip_stats_update_on_db_open(true);
    options
}

/// Options of a state's column family. Compaction drops entries that were touched last at `expired_until_ms` or before.
pub fn family(profile: RocksdbProfile, memory: &SharedMemory, expired_until_ms: Arc<AtomicI64>) -> Options {
    let tuning = tuning(profile);
    let level_1_bytes = memory.overlays.bytes() as u64 / LEVEL_1_PART;
    let mut options = Options::default();
    options.set_block_based_table_factory(&blocks(&tuning, &memory.cache));
    options.set_write_buffer_size(MEMTABLE_BYTES);
    options.set_level_zero_file_num_compaction_trigger(LEVEL_0_TRIGGER);
    options.set_level_zero_slowdown_writes_trigger(5 * LEVEL_0_TRIGGER);
    options.set_level_zero_stop_writes_trigger(10 * LEVEL_0_TRIGGER);
    options.set_level_compaction_dynamic_level_bytes(true);
    options.set_max_bytes_for_level_base(level_1_bytes.clamp(LEVEL_1_BYTES.0, LEVEL_1_BYTES.1) * tuning.file_factor);
    options.set_target_file_size_base(FILE_BYTES * tuning.file_factor);
    let mut compression = [DBCompressionType::Lz4; 7];
    compression[0] = DBCompressionType::None;
    options.set_compression_per_level(&compression);
    options.set_compaction_filter(c"levada-expiry", move |_, _, value| {
        let until = expired_until_ms.load(Ordering::Relaxed);
        let is_expired = until != NEVER_EXPIRED && RowLayout::touched_at(value).is_some_and(|touched| touched <= until);
        if is_expired { CompactionDecision::Remove } else { CompactionDecision::Keep }
    });
    options
}

/// Options of files that are ingested. Their compression is said here: a writer does not take that of a level. Where the first
/// `prefix_bytes` of a key are asked for, their filters know these too.
pub fn ingested(profile: RocksdbProfile, cache: &Cache, compression: DBCompressionType, prefix_bytes: Option<usize>) -> Options {
    let mut options = Options::default();
    if let Some(bytes) = prefix_bytes {
        options.set_prefix_extractor(SliceTransform::create_fixed_prefix(bytes));
    }
    options.set_block_based_table_factory(&blocks(&tuning(profile), cache));
    options.set_compression_type(compression);
    options
}

fn blocks(tuning: &Tuning, cache: &Cache) -> BlockBasedOptions {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(cache);
    blocks.set_block_size(tuning.block_bytes);
    blocks.set_bloom_filter(BLOOM_BITS, false);
    // Indexes and filters are memory too: in the cache they are counted and bounded.
    blocks.set_cache_index_and_filter_blocks(true);
    blocks.set_cache_index_and_filter_blocks_with_high_priority(true);
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
    blocks.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
    blocks
}

/// The option of a family by which filters know the first `bytes` of its keys too, as RocksDB writes it.
pub fn prefix_filter(bytes: usize) -> (&'static str, String) {
    ("prefix_extractor", format!("fixed:{bytes}"))
}

/// Options of a read that goes from any key to the next one: no file may be left out.
pub fn in_order() -> ReadOptions {
    let mut options = ReadOptions::default();
    options.set_total_order_seek(true);
    options
}

/// Options of reads of what is below keys: where the family has a prefix filter, files that have nothing of a key are left out, so
/// that from one key to the next is a seek.
pub fn below_keys(prefix_bytes: Option<usize>) -> ReadOptions {
    if prefix_bytes.is_some() { ReadOptions::default() } else { in_order() }
}

/// Options of a long read that must not push others' blocks out of the cache.
pub fn long_read() -> ReadOptions {
    let mut options = in_order();
    options.fill_cache(false);
    options.set_readahead_size(1 << 20);
    options
}

/// Options of a write: there is no log, checkpoints are the durability.
pub fn write() -> WriteOptions {
    let mut options = WriteOptions::new();
    options.disable_wal(true);
    options
}

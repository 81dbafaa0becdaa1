import { execFileSync } from 'node:child_process';
import test from 'ava';
import { collectYoungBuffers, YoungBuffers } from '../heap.ts';

const GATHERED_BYTES_MAX = 16 * 1024 * 1024;
const MB = 1024 * 1024;

class StubHeap {
  bytes = 40 * MB;
  left = 40 * MB;
  collections = 0;

  externalBytes(): number {
    return this.bytes;
  }

  collectYoung(): void {
    this.collections += 1;
    this.bytes = this.left;
  }
}

test('the young heap is collected once enough bytes have gathered, and not before', t => {
  const heap = new StubHeap();
  const buffers = new YoungBuffers(heap);
  heap.bytes += GATHERED_BYTES_MAX - 1;
  buffers.check();
  t.is(heap.collections, 0);
  heap.bytes += 1;
  buffers.check();
  buffers.check();
  t.is(heap.collections, 1);
});

test('buffers that outlive a collection do not cause another one', t => {
  const heap = new StubHeap();
  const buffers = new YoungBuffers(heap);
  heap.left = 100 * MB;
  heap.bytes = 110 * MB;
  for (let check = 0; check < 10; check++) buffers.check();
  t.is(heap.collections, 1);
  heap.bytes += GATHERED_BYTES_MAX;
  buffers.check();
  t.is(heap.collections, 2);
});

test('after memory was freed, new bytes count from there', t => {
  const heap = new StubHeap();
  const buffers = new YoungBuffers(heap);
  heap.bytes = 10 * MB;
  buffers.check();
  heap.bytes += GATHERED_BYTES_MAX;
  buffers.check();
  t.is(heap.collections, 1);
});

test('a process at rest is looked at less often than one that takes bytes', t => {
  const heap = new StubHeap();
  const buffers = new YoungBuffers(heap);
  for (let quiet = 1; quiet < 10; quiet += 1) t.is(buffers.check(), 100);
  t.is(buffers.check(), 250);
  heap.bytes += 2 * MB;
  t.is(buffers.check(), 100);
});

test('V8 knows the flags, since it would ignore unknown ones', t => {
  const output = execFileSync(process.execPath, ['--v8-options'], { encoding: 'utf8' });
  const known = output.split(/\s+/);
  const flags = ['--heap-growing-percent', '--parallel-scavenge'];
  for (const flag of flags) t.true(known.includes(flag), flag);
  t.false(known.includes('--heap-growing-promille'));
});

test('V8 lets a running program collect its young heap', t => {
  t.notThrows(collectYoungBuffers);
});

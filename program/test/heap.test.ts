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

test('it collects when much has gathered, and not before', t => {
  const heap = new StubHeap();
  const buffers = new YoungBuffers(heap);
  heap.bytes += GATHERED_BYTES_MAX - 1;
  buffers.look();
  t.is(heap.collections, 0);
  heap.bytes += 1;
  buffers.look();
  buffers.look();
  t.is(heap.collections, 1);
});

test('what outlives a collection is not collected again and again', t => {
  const heap = new StubHeap();
  const buffers = new YoungBuffers(heap);
  heap.left = 100 * MB;
  heap.bytes = 110 * MB;
  for (let look = 0; look < 10; look++) buffers.look();
  t.is(heap.collections, 1);
  heap.bytes += GATHERED_BYTES_MAX;
  buffers.look();
  t.is(heap.collections, 2);
});

test('what gathers after somebody let go counts from there', t => {
  const heap = new StubHeap();
  const buffers = new YoungBuffers(heap);
  heap.bytes = 10 * MB;
  buffers.look();
  heap.bytes += GATHERED_BYTES_MAX;
  buffers.look();
  t.is(heap.collections, 1);
});

test('this V8 knows the flags: it would ignore one that it does not', t => {
  const said = execFileSync(process.execPath, ['--v8-options'], { encoding: 'utf8' });
  const known = said.split(/\s+/);
  const flags = ['--heap-growing-percent', '--parallel-scavenge'];
  for (const flag of flags) t.true(known.includes(flag), flag);
  t.false(known.includes('--heap-growing-promille'));
});

test('this V8 gives a program that runs its collection of the young', t => {
  t.notThrows(collectYoungBuffers);
});

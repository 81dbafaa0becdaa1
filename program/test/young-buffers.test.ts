import { execFileSync } from 'node:child_process';
import path from 'node:path';
import test from 'ava';
import { GATHERED_BYTES_MAX, YoungBuffers } from '../young-buffers.ts';

const MB = 1024 * 1024;

class StubHeap {
  bytes = 40 * MB;
  /** What a collection leaves. */
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

/** Garbage of buffers, 3 MB at a time and 300 MB in all, in a process of its own. */
function majorCollections(collecting: boolean): number {
  const module = JSON.stringify(path.join(import.meta.dirname, '../young-buffers.ts'));
  const script = `
    import { PerformanceObserver, constants } from 'node:perf_hooks';
    import { setTimeout as delay } from 'node:timers/promises';
    import { collectYoungBuffers } from ${module};
    let major = 0;
    new PerformanceObserver(list => {
      for (const { detail } of list.getEntries()) {
        if (detail.kind === constants.NODE_PERFORMANCE_GC_MAJOR) major += 1;
      }
    }).observe({ entryTypes: ['gc'] });
    if (${collecting}) collectYoungBuffers();
    for (let round = 0; round < 20; round++) {
      for (let file = 0; file < 5; file++) Buffer.alloc(3_000_000);
      await delay(120);
    }
    console.log(major);
  `;
  const args = ['--input-type=module', '--eval', script];
  return Number(execFileSync(process.execPath, args, { encoding: 'utf8' }));
}

test('in a process buffers that pass through cost no collection of the whole heap', t => {
  t.true(majorCollections(false) >= 2);
  t.is(majorCollections(true), 0);
});

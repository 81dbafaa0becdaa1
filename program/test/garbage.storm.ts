/** V8's memory for passing buffers. Takes seconds, and gigabytes in total. */
import { execFileSync } from 'node:child_process';
import path from 'node:path';
import test from 'ava';

/**
 * Counts full collections during 300 MB of garbage in a process whose heap is as large as a
 * program's: V8 adds external memory to the heap, so a small heap would be collected at other
 * times.
 */
function majorCollections(collecting: boolean): number {
  const module = JSON.stringify(path.join(import.meta.dirname, '../heap.ts'));
  const script = `
    import { PerformanceObserver, constants } from 'node:perf_hooks';
    import { setTimeout as delay } from 'node:timers/promises';
    import { collectYoungBuffers, letHeapGrow } from ${module};
    letHeapGrow();
    globalThis.live = Array.from({ length: 250_000 }, (_none, index) => ({ index, text: '' + index }));
    globalThis.gc();
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
  const args = ['--expose-gc', '--input-type=module', '--eval', script];
  return Number(execFileSync(process.execPath, args, { encoding: 'utf8' }));
}

test('buffers that pass through a process cause no collection of the whole heap', t => {
  t.true(majorCollections(false) >= 2);
  t.is(majorCollections(true), 0);
});

const FILE_MB = 10;
const LIVE = 10;
const FILES = 400;
/** Twice the usual: the live heap, V8's external buffers and the process. */
const RESIDENT_MB_MAX = 700;

test('files that passed through do not gather, in a process that V8 gives a large heap', t => {
  const module = JSON.stringify(path.join(import.meta.dirname, '../heap.ts'));
  const script = `
    import { letHeapGrow } from ${module};
    letHeapGrow();
    const live = [];
    for (let file = 0; file < ${FILES}; file += 1) {
      live.push(Buffer.alloc(${FILE_MB * 1_000_000}, 1));
      if (live.length > ${LIVE}) live.shift();
      await new Promise(setImmediate);
    }
    console.log(process.resourceUsage().maxRSS);
  `;
  const args = ['--max-old-space-size=4500', '--input-type=module', '--eval', script];
  const residentKb = Number(execFileSync(process.execPath, args, { encoding: 'utf8' }));
  const residentMb = residentKb / 1024;
  t.true(residentMb > FILE_MB * LIVE && residentMb < RESIDENT_MB_MAX, `${residentMb} MB`);
});

import { execFileSync } from 'node:child_process';
import path from 'node:path';
import test from 'ava';
import { GROWTH_FLAG, YOUNG_FLAG } from '../heap-growth.ts';

test('this V8 knows the flags: it would ignore one that it does not', t => {
  const said = execFileSync(process.execPath, ['--v8-options'], { encoding: 'utf8' });
  const known = said.split(/\s+/);
  const flags = [GROWTH_FLAG, YOUNG_FLAG.replace('--no-', '--')];
  for (const flag of flags) t.true(known.includes(flag), flag);
  t.false(known.includes('--heap-growing-promille'));
});

const FILE_MB = 10;
const LIVE = 10;
const FILES = 400;
/** What lives, what V8 lets gather outside the heap, and the process itself: twice what is usual. */
const RESIDENT_MB_MAX = 700;

test('files that passed through do not gather, in a process that V8 gives a large heap', t => {
  const module = JSON.stringify(path.join(import.meta.dirname, '../heap-growth.ts'));
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

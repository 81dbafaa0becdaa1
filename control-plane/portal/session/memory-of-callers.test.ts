/** The code's bounds give the memory that docs/limits.md adds up. */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import {
  TEXT_BYTES_MAX,
  UPLOADS_MAX,
  UPLOADS_WAITING_MAX,
  WRITE_BYTES,
} from '@matting/core/test/internals.ts';
import { BODIES_SHARE, PUBLIC_MAX } from '@matting/http/connections.ts';
import { UNREAD_BYTES_MAX } from '@matting/program/ports/reader-pace.ts';
import { MemoryGroup, skipWithoutMemoryGroups } from '@matting/test-support/memory-group.ts';
import test from 'ava';
import { FORM_BYTES_MAX } from './visit.ts';

const ROOT = path.resolve(import.meta.dirname, '../../..');
const KIB = 1024;
const MIB = 1024 * KIB;
const GIB = 1024 * MIB;

/** Node reads at most this much of a connection at once, as one chunk. */
const CHUNK_BYTES = 64 * KIB;
/** The bytes of a chunk of Base64. */
const DECODED_BYTES = (CHUNK_BYTES / 4) * 3;

/**
 * Outside of V8's heap, as measured with 4000 idle connections (3.7 KB each, and 21 KB in the heap)
 * and with none.
 */
const CONNECTION_BYTES = 4 * KIB;
const PROGRAM_BYTES = 24 * MIB;

/** Number and size of each row, in the document's order. */
const HELD: readonly (readonly [number, number])[] = [
  [1, TEXT_BYTES_MAX],
  // An upload holds its current chunk, the decoded bytes, and the next chunk.
  [UPLOADS_MAX, WRITE_BYTES + CHUNK_BYTES + DECODED_BYTES + CHUNK_BYTES],
  [UPLOADS_WAITING_MAX, CHUNK_BYTES],
  // One set for strangers, one for people.
  [2 * PUBLIC_MAX * BODIES_SHARE, FORM_BYTES_MAX],
  [1, UNREAD_BYTES_MAX],
  [PUBLIC_MAX, CONNECTION_BYTES],
  [1, PROGRAM_BYTES],
];

/** The size to which V8's heap grows with 1 GiB of memory. */
const HEAP_BYTES_MAX = 560 * MIB;

function textOf(file: string): string {
  return readFileSync(path.join(ROOT, file), 'utf8');
}

const sum = HELD.reduce((all, [number, bytes]) => all + number * bytes, 0);

test('docs/limits.md says what the code bounds', t => {
  const [, section = ''] = textOf('docs/limits.md').split('## Memory held for callers\n');
  const rows = section.split('\n').filter(line => /^\| .* MiB \|$/.test(line));
  const documented = rows.map(row =>
    row
      .split('|')
      .slice(2, -1)
      .map(cell => cell.trim()),
  );
  const expected = HELD.map(([number, bytes]) => [
    number.toLocaleString('en'),
    bytes < MIB ? `${bytes / KIB} KiB` : `${bytes / MIB} MiB`,
    `${(number * bytes) / MIB} MiB`,
  ]);
  t.deepEqual(documented, expected);
  t.true(section.includes(`${sum / MIB} MiB together`));
});

test("the memory held for callers and a full heap fit into the chart's memory limit", t => {
  const [, plane = ''] = textOf('deploy/chart/values.yaml').split('\ncontrolPlane:\n');
  const [, limit] = /limits: \{ memory: (\d+)Gi \}/.exec(plane) ?? [];
  t.is(Number(limit), 1);
  t.true(sum + HEAP_BYTES_MAX < Number(limit) * GIB);
});

test.skipIf(skipWithoutMemoryGroups() !== false)(
  'a heap in 1 GiB has the bound that is counted',
  t => {
    const group = new MemoryGroup('heap', GIB);
    try {
      const [program = '', ...args] = group.within;
      const script = ['-p', "require('node:v8').getHeapStatistics().heap_size_limit"];
      const output = execFileSync(program, [...args, process.execPath, ...script], {
        encoding: 'utf8',
        env: { PATH: process.env.PATH },
      });
      t.is(Number(output), HEAP_BYTES_MAX);
    } finally {
      group.remove();
    }
  },
);

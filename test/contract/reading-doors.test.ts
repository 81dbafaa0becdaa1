/**
 * Compares each reading route's weight with ARCHITECTURE.md. Needs: batches, removebg, photoroom,
 * rembg, mcp, portal.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import ava from 'ava';
import { useTestApp } from '../../control-plane/test/app.ts';

const test = ava.serial;
const app = useTestApp(test, {
  settings: { photoroom: {}, rembg: { standInKeyId: undefined } },
});

const page = readFileSync(new URL('../../ARCHITECTURE.md', import.meta.url), 'utf8');
const [, section = ''] = /^## Doors that read\n([\s\S]*?)^## /m.exec(page) ?? [];
/** By `GET /path`; `*` at the end matches anything. */
const WEIGHTS = new Map(
  section.split('\n').flatMap(line => {
    const [, doors = '', weight = ''] = /^\| (.*) \| (.*) \|$/.exec(line) ?? [];
    return [...doors.matchAll(/`([A-Z]+ [^`]+)`/g)].map(([, door = '']) => [door, weight] as const);
  }),
);

function weightOf(door: string): string | undefined {
  const isOf = (one: string) => one.endsWith('*') && door.startsWith(one.slice(0, -1));
  return WEIGHTS.get(door) ?? WEIGHTS.get([...WEIGHTS.keys()].find(isOf) ?? '');
}

test('every route that reads has the weight that the table says', t => {
  const found = new Set<string>();
  for (const { method, url, config } of app.routes) {
    for (const one of [method].flat().filter(name => ['GET', 'HEAD', 'DELETE'].includes(name))) {
      const door = `${one === 'HEAD' ? 'GET' : one} ${url}`;
      const said = weightOf(door);
      const weight = config?.weight ?? 'none';
      const shown = typeof weight === 'function' ? '1 for each 125 of `limit`' : String(weight);
      t.is(shown, said ?? 'no line', `${one} ${url}`);
      found.add(door);
    }
  }
  const gone = [...WEIGHTS.keys()].filter(door => !door.endsWith('*') && !found.has(door));
  t.deepEqual(gone, []);
});

test('a page of results weighs as many lines as it may have', t => {
  const route = app.routes.find(({ url }) => url === '/v1/matting/batches/:batchId/results');
  const weight = route?.config?.weight;
  assert.ok(typeof weight === 'function');
  const of = (query: string) => weight({ raw: { url: `/results${query}` } } as never);
  t.deepEqual(['', '?limit=1', '?limit=126', '?limit=1000'].map(of), [1, 1, 2, 8]);
});

import { readFileSync } from 'node:fs';
import path from 'node:path';
import { status as grpcStatus } from '@grpc/grpc-js';
import test from 'ava';
import { ERROR_CATALOGUE, type ErrorSpec, type RetryRule } from '#contract/errors.ts';

const page = readFileSync(path.resolve(import.meta.dirname, '../../docs/errors.md'), 'utf8');
const sections = new Map(
  page
    .split(/^### /m)
    .slice(1)
    .map(section => [section.slice(0, section.indexOf('\n')), section]),
);

/** Codes whose cause decides, as the contract says. */
const BY_CAUSE = ['IMAGE_DOWNLOAD_FAILED', 'PROCESSING_FAILED'];
const RETRY_WORDS: Record<RetryRule, string> = {
  never: 'no',
  later: 'yes',
  'other-node': 'another node',
};

function factsOf(code: string, spec: ErrorSpec): string {
  const http = spec.scope === 'node' ? '' : `HTTP ${spec.http}, `;
  const retryable = BY_CAUSE.includes(code) ? 'by its cause' : RETRY_WORDS[spec.retry];
  return `${http}gRPC ${grpcStatus[spec.grpc]}, retryable: ${retryable}.`;
}

test('the page has a heading for each code of the catalogue, and no other', t => {
  t.deepEqual([...sections.keys()].sort(), Object.keys(ERROR_CATALOGUE).sort());
  t.is(page.match(/^### /gm)?.length, sections.size);
});

for (const [code, spec] of Object.entries(ERROR_CATALOGUE)) {
  test(`${code}: facts, cause and what to do`, t => {
    const [, , facts, , ...rest] = (sections.get(code) ?? '').split('\n');
    t.is(facts, factsOf(code, spec));
    t.regex(rest.join('\n'), /^Cause: \S/m);
    t.regex(rest.join('\n'), /^What to do: \S/m);
  });
}

test("a problem's type leads to its heading, as renderers name it", t => {
  for (const heading of sections.keys()) t.regex(heading, /^[A-Z_]+$/);
});

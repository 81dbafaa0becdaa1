import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { status as grpcStatus } from '@grpc/grpc-js';
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

test('the page has a heading for each code of the catalogue, and no other', () => {
  assert.deepEqual([...sections.keys()].sort(), Object.keys(ERROR_CATALOGUE).sort());
  assert.equal(page.match(/^### /gm)?.length, sections.size);
});

for (const [code, spec] of Object.entries(ERROR_CATALOGUE)) {
  test(`${code}: facts, cause and what to do`, () => {
    const [, , facts, , ...rest] = (sections.get(code) ?? '').split('\n');
    assert.equal(facts, factsOf(code, spec));
    assert.match(rest.join('\n'), /^Cause: \S/m);
    assert.match(rest.join('\n'), /^What to do: \S/m);
  });
}

test("a problem's type leads to its heading, as renderers name it", () => {
  for (const heading of sections.keys()) assert.match(heading, /^[A-Z_]+$/);
});

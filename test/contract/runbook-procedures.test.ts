/** Every page of docs/runbook.md is tried in test/runbook, or the page's preface says why not. */
import assert from 'node:assert/strict';
import { globSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { readPage, runbookPages } from '../runbook/runbook-page.ts';

const FOLDER = 'test/runbook';
const files = globSync('*.runbook.ts', { cwd: path.resolve(import.meta.dirname, '../runbook') });
const tried = files.flatMap(file =>
  [...readPage(`${FOLDER}/${file}`).matchAll(/\bprocedure\(service, '(\w+)'/g)].map(
    ([, name]) => name,
  ),
);
const [preface = ''] = readPage('docs/runbook.md').split('\n## ');
const [, untriedText = ''] = preface.split('Not tried');
const untried = [...untriedText.matchAll(/\bMatting\w+/g)].map(([name]) => name);

test('what was tried and what was not are all the pages', () => {
  assert.ok(tried.length > 30);
  assert.deepEqual([...tried, ...untried].toSorted(), [...runbookPages().keys()].toSorted());
});

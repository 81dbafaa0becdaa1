import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import sharp from 'sharp';
import { cellsOf } from '../../../bench/card/bare.ts';
import { CardFile, type CardResults } from '../../../bench/card/card-file.ts';
import { judgeAnswers } from '../../../bench/card/faults.ts';
import { sumsBy } from '../../../bench/card/node-metrics.ts';
import { readOptions } from '../../../bench/card/options.ts';
import { summariseParity } from '../../../bench/card/parity.ts';
import { Section, WrongFigures } from '../../../bench/card/section.ts';
import { describeLog } from '../../../bench/card/watched-node.ts';

test('the command line is checked, and says what it takes', () => {
  const wrong = [
    ['--only', 'bare,cheap'],
    ['--provider', 'gpu'],
    ['--seconds', 'many'],
    ['--engines', '1,5'],
    ['--batches', '3'],
    ['--graph', 'isnet,large,fp16'],
    ['--graph', 'isnet,1024,fp8'],
    ['--formats', 'gif'],
  ];
  for (const args of wrong) assert.throws(() => readOptions(args, 16), /usage:/, args.join(' '));
  const options = readOptions(['--only', 'goals', '--batches', '1,8', '--minutes', '0.5'], 16);
  assert.deepEqual([options.only, options.batches, options.minutes], [['goals'], [1, 8], 0.5]);
  assert.deepEqual([options.threads, options.provider, options.graphs.length], [4, 'cuda', 5]);
});

test('the first graph comes before others, engines alone before several images at once', () => {
  const { graphs } = readOptions([], 2);
  const options = { ...readOptions(['--engines', '1,2,4', '--batches', '1,8'], 2) };
  const cells = cellsOf({ ...options, graphs: graphs.slice(0, 2) });
  assert.equal(
    cells.map(({ graph, engines, images }) => `${graph.precision}:${engines}x${images}`).join(' '),
    'fp16:1x1 fp16:2x1 fp16:4x1 fp32:1x1 fp16:1x8 fp32:2x1 fp32:4x1 fp32:1x8 fp16:2x8 fp32:2x8',
  );
  const one = cellsOf({ ...options, graphs: graphs.slice(0, 1), engines: [3], batches: [1] });
  assert.deepEqual(
    one.map(({ engines, images }) => [engines, images]),
    [[3, 1]],
  );
});

test('a failed row loses nothing, one without time is named, the file is always whole', async t => {
  t.mock.method(console, 'log', () => undefined);
  const folder = await mkdtemp(path.join(tmpdir(), 'card-'));
  const out = path.join(folder, 'results/card.json');
  const read = async () => JSON.parse(await readFile(out, 'utf8')) as CardResults;
  try {
    const file = new CardFile(out, { gpu: 'one' });
    const ending = new AbortController().signal;
    const section = new Section('bare', { file, seconds: 60, ending });
    await section.row('first', 1, async () => ({ imagesPerS: 5 }));
    assert.equal((await read()).sections.bare?.rows.length, 1);
    await section.row('second', 1, () => Promise.reject(new Error('CUDA failure\n 100')));
    await section.row('third', 61_000, async () => ({}));
    const { rows, leftOut } = (await read()).sections.bare ?? { rows: [], leftOut: [] };
    assert.deepEqual(
      rows.map(({ name, failed }) => [name, failed]),
      [
        ['first', undefined],
        ['second', 'CUDA failure 100'],
      ],
    );
    assert.deepEqual(leftOut, ['third']);
    const kept = new WrongFigures('other mattes', { meanLevels: 55 });
    await section.row('fourth', 1, () => Promise.reject(kept));
    const fourth = { name: 'fourth', failed: 'other mattes', figures: { meanLevels: 55 } };
    assert.deepEqual((await read()).sections.bare?.rows.at(-1), fourth);
    const later = new CardFile(out, { gpu: 'one' });
    new Section('steady', { file: later, seconds: 1, ending }).note({});
    assert.deepEqual(Object.keys((await read()).sections), ['bare', 'steady']);
    assert.deepEqual(new CardFile(out, { gpu: 'another' }).results.sections, {});
  } finally {
    await rm(folder, { recursive: true });
  }
});

test('a section is over at its time, and when the program is told to end', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'card-'));
  const file = new CardFile(path.join(folder, 'card.json'), {});
  try {
    const told = new AbortController();
    const short = new Section('bare', { file, seconds: 0.02, ending: told.signal });
    const long = new Section('bare', { file, seconds: 60, ending: told.signal });
    while (!short.signal.aborted) await delay(5);
    assert.match(String(short.signal.reason), /time was over/);
    assert.equal(long.signal.aborted, false);
    told.abort(new Error('told to end'));
    assert.match(String(long.signal.reason), /told to end/);
    const late = new Section('bare', { file, seconds: 60, ending: told.signal });
    assert.equal(late.signal.aborted, true);
    await late.row('left out', 1, async () => ({}));
    assert.deepEqual(late.result.leftOut, ['left out']);
  } finally {
    await rm(folder, { recursive: true });
  }
});

test('a page of metrics is summed by a label, or whole', () => {
  const text = [
    '# HELP a_total What it is.',
    'a_total{model="isnet",stage="infer"} 1.5',
    'a_total{stage="infer",model="modnet"} 2',
    'a_total{model="isnet",stage="encode"} 4',
    'a_total_more{stage="infer"} 100',
    'b 7',
  ].join('\n');
  assert.deepEqual(
    [...sumsBy(text, 'a_total', 'stage')],
    [
      ['infer', 3.5],
      ['encode', 4],
    ],
  );
  assert.deepEqual([...sumsBy(text, 'a_total')], [['', 7.5]]);
  assert.deepEqual([...sumsBy(text, 'b')], [['', 7]]);
});

test('of a log each warning is told once, and what tells how it went on', () => {
  const line = (level: number, msg: string, more = {}) => JSON.stringify({ level, msg, ...more });
  const lost = line(40, 'engine lost', { cause: 'load', reason: 'libx.so is missing' });
  const text = [line(30, 'listening'), lost, lost, line(30, 'engine ready'), 'a last word', ''];
  assert.deepEqual(describeLog(text.join('\n')), [
    'engine lost: load, libx.so is missing (2 times)',
    'engine ready',
    'a last word',
  ]);
});

test('an image is answered rightly by the picture that it has when nothing is wrong', async () => {
  const cutOut = (alpha: number, width = 8) =>
    sharp({ create: { width, height: 8, channels: 4, background: { r: 9, g: 9, b: 9, alpha } } })
      .png()
      .toBuffer();
  const expected = await cutOut(0.5);
  const answers = [
    { count: 5, file: expected },
    { count: 3, file: await cutOut(0.502) },
    { count: 2, file: await cutOut(0.6) },
    { count: 1, file: await cutOut(0.5, 16) },
    { count: 1, file: Buffer.from('{"title":"an error"}') },
  ];
  const judged = await judgeAnswers({ answered: 13, failed: 2, answers }, expected);
  assert.deepEqual([judged.wrong, judged.unseen, judged.failed, judged.notRight], [4, 1, 2, 7]);
});

test('mattes are compared in levels, and in quality where there is a reference', () => {
  const quality = (error: number) => {
    return { sad: error, mse: error, gradient: error, mae: error, softMae: 0 };
  };
  const compared = summariseParity([
    { name: 'a', meanLevels: 0.1, greatestLevel: 7, errors: undefined },
    {
      ...{ name: 'b', meanLevels: 0.3, greatestLevel: 3 },
      errors: { cpu: quality(2), provider: { ...quality(2), mse: 2.1 } },
    },
  ]);
  assert.deepEqual([compared.meanLevels, compared.worstPhoto], [0.2, 'b']);
  assert.deepEqual([compared.greatestLevel, compared.withReference], [7, 1]);
  assert.equal(compared.worstQualityRatio, 1.05);
  assert.throws(() => summariseParity([]), /no photo/);
});

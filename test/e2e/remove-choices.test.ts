/** `matting remove`: what is taken, where results go, what is asked of them, what is refused. */
import assert from 'node:assert/strict';
import { chmodSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import { type MatteHeader, OutputFormat } from '#gen/matting/v1/matte_service.ts';
import { cutOutOf } from '../../control-plane/test/nodes/scripted-exchange.ts';
import { picture, RemoveHarness } from './remove-harness.ts';

let harness: RemoveHarness;

before(async () => {
  harness = await RemoveHarness.open();
});
beforeEach(() => harness.beginTest());
afterEach(() => harness.endTest());
after(() => harness.replicas.close());

test('the same picture under two names is paid once, and its line says all', async () => {
  harness.write('a.png', picture(1));
  harness.write('b.jpg', picture(1));
  const { code, stderr } = await harness.remove([
    'a.png',
    'b.jpg',
    '--to',
    'out',
    '--concurrency',
    '1',
  ]);
  assert.equal(code, 0, stderr);
  assert.equal(await harness.charged(), 1);
  const [first, second] = harness.journal();
  assert.ok(first && second);
  assert.deepEqual([first.file, second.file], ['a.png', 'b.jpg']);
  assert.deepEqual([first.output, second.output], ['a.png', 'b.png']);
  assert.equal(first.job, second.job);
  assert.match(first.sha256 ?? '', /^[0-9a-f]{64}$/);
  assert.equal(first.size?.bytes, cutOutOf(picture(1)).length);
  // Another name of the run, and another wish, are other requests.
  await harness.remove(['a.png', '--to', 'out', '--run', 'second']);
  await harness.remove(['a.png', '--to', 'out', '--format', 'webp']);
  assert.equal(await harness.charged(), 3);
});

test('what cannot be cut out is named, and the rest is done', async () => {
  harness.write('photos/good.png', picture(2));
  harness.write('photos/bad.png', picture(3));
  harness.write('photos/text.png', 'no picture');
  harness.write('photos/empty.png', '');
  harness.write('photos/notes.txt', 'not looked at');
  harness.write('photos/.hidden.png', picture(4));
  harness.write('photos/below/deep.png', picture(5));
  symlinkSync('nowhere', path.join(harness.folder, 'photos/dangling.png'));
  symlinkSync('.', path.join(harness.folder, 'photos/loop'));
  harness.node.script = async exchange => {
    exchange.admit();
    const input = await exchange.receive();
    if (input.equals(picture(3))) exchange.fail('PROCESSING_FAILED', { retryable: false });
    else exchange.answer(input);
  };
  const flat = await harness.remove(['photos', '--to', 'out']);
  assert.equal(flat.code, 1);
  for (const name of ['bad', 'text', 'empty', 'dangling']) {
    assert.match(flat.stderr, new RegExp(`photos/${name}\\.png: [A-Z_]+: `));
  }
  assert.deepEqual(harness.filesBelow('out'), ['photos/good.png', 'results.jsonl']);
  const codes = new Map(harness.journal().map(({ file, error }) => [file, error?.code]));
  assert.equal(codes.get('photos/bad.png'), 'PROCESSING_FAILED');
  assert.equal(codes.get('photos/text.png'), 'UNSUPPORTED_IMAGE_FORMAT');
  assert.equal(codes.get('photos/dangling.png'), 'ENOENT');
  await harness.remove(['photos/.', '--to', 'deep', '--recursive']);
  assert.deepEqual(harness.filesBelow('deep'), ['below/deep.png', 'good.png', 'results.jsonl']);
  assert.equal(await harness.charged(), 2);
});

test('results that would take the same place are refused before any is paid', async () => {
  for (const name of ['a/x.png', 'b/x.png', 'a/x.webp']) harness.write(name, picture(name.length));
  const cases: [string[], RegExp][] = [
    [['a'], /a\/x\.png and a\/x\.webp would both become a\/x\.png: --full-names/],
    [['a/x.png', 'b/x.png'], /would both become x\.png/],
    [['a/x.png', '--to', 'a'], /would overwrite what they are made of: a\/x\.png/],
    [['a', '--to', 'a'], /a is the folder of the results/],
    [['-', 'a', '--to', 'out'], /- stands alone/],
    [['a', '--no-such-option'], /unknown option/],
    [['a', '--format', 'gif'], /--format/],
    [['a', '--format', 'jpeg'], /background/],
    [['a', '--background', 'no colour'], /background must be/],
    [['a', '--scale', '5%'], /scale must be/],
    [['a', '--crop-margin', '1px'], /crop_margin needs crop/],
  ];
  for (const [args, said] of cases) {
    const { code, stderr } = await harness.remove(
      args.includes('--to') ? args : [...args, '--to', 'out'],
    );
    assert.equal(code, 64, stderr);
    assert.match(stderr, said);
  }
  const elsewhere = harness.start(['b', '--to', 'out', '--url', 'ftp://example.com']);
  assert.equal((await elsewhere.ended).code, 64);
  assert.match(elsewhere.stderr(), /baseUrl must be http/);
  assert.equal(await harness.charged(), 0);
  const apart = await harness.remove(['a', 'b', 'a/x.png', '--to', 'out', '--full-names']);
  assert.equal(apart.code, 0, apart.stderr);
  const made = ['a/x.png.png', 'a/x.webp.png', 'b/x.png.png', 'results.jsonl', 'x.png.png'];
  assert.deepEqual(harness.filesBelow('out'), made);
  // A folder of results inside of what is read is not read.
  const inside = await harness.remove(['a', '--to', 'a/out', '--full-names', '--recursive']);
  assert.equal(inside.code, 0, inside.stderr);
  assert.deepEqual(harness.filesBelow('a/out'), ['a/x.png.png', 'a/x.webp.png', 'results.jsonl']);
});

test('what exists is left alone where that is asked for', async () => {
  harness.write('a.png', picture(6));
  harness.write('out/a.png', 'made by hand');
  harness.write('out/.a.png.999999999.part', 'left by a kill');
  assert.equal((await harness.remove(['a.png', '--to', 'out', '--skip-existing'])).code, 0);
  assert.equal(harness.read('out/a.png').toString(), 'made by hand');
  assert.equal(await harness.charged(), 0);
  assert.equal((await harness.remove(['a.png', '--to', 'out'])).code, 0);
  assert.deepEqual(harness.read('out/a.png'), cutOutOf(picture(6)));
  assert.deepEqual(harness.filesBelow('out'), ['a.png', 'results.jsonl']);
});

test('what is asked of the cut-outs reaches the node, and is another request', async () => {
  const asked: MatteHeader[] = [];
  const finishing = await harness.replicas.addNode({
    info: { outputFormats: [OutputFormat.OUTPUT_FORMAT_JPEG] },
    script: async exchange => {
      asked.push(exchange.header);
      const inputBox = { left: 1, top: 0, width: 2, height: 3 };
      const subject = { inputBox, resultBox: inputBox, share: 0.25 };
      await exchange.cutOut({ inputWidth: 4, inputHeight: 3, subject });
    },
  });
  try {
    harness.write('a.png', picture(20));
    const wishes = ['--format', 'jpeg', '--background', 'white', '--crop', '--crop-margin', '5%'];
    const args = ['a.png', '--to', 'out', ...wishes, '--output-width', '100'];
    const { code, stderr } = await harness.remove(args);
    assert.equal(code, 0, stderr);
    assert.deepEqual(harness.filesBelow('out'), ['a.jpg', 'results.jsonl']);
    const [header] = asked;
    assert.equal(header?.outputFormat, OutputFormat.OUTPUT_FORMAT_JPEG);
    assert.equal(header.finishing?.outputWidth, 100);
    assert.deepEqual(header.finishing?.background, {
      $case: 'backgroundRgba',
      value: 0xffffffff,
    });
    assert.ok(header.finishing?.crop);
    const [line] = harness.journal();
    assert.deepEqual(line?.subject, { left: 1, top: 0, width: 2, height: 3, share: 0.25 });
    assert.equal((await harness.remove([...args, '--scale', '85%'])).code, 0);
    assert.equal(await harness.charged(), 2, 'another wish is another request');
  } finally {
    await finishing.down();
  }
});

test('from standard input to standard output', async () => {
  const piped = harness.start(['-', '--url', harness.url]);
  piped.child.stdin?.end(picture(9));
  const { code, stdout, stderr } = await piped.ended;
  assert.deepEqual([code, stderr], [0, '']);
  assert.deepEqual(stdout, cutOutOf(picture(9)));
  const bad = harness.start(['-', '--url', harness.url]);
  bad.child.stdin?.end('no picture');
  const refused = await bad.ended;
  assert.deepEqual([refused.code, refused.stdout.length], [1, 0]);
  assert.match(refused.stderr, /UNSUPPORTED_IMAGE_FORMAT/);
  assert.equal((await harness.remove(['-'])).code, 65);
});

test('a folder that cannot be read is named', async context => {
  if (process.getuid?.() === 0) return context.skip('root reads everything');
  harness.write('photos/a.png', picture(10));
  harness.write('photos/closed/b.png', picture(11));
  chmodSync(path.join(harness.folder, 'photos/closed'), 0);
  const { code, stderr } = await harness.remove(['photos', '--to', 'out', '--recursive']);
  chmodSync(path.join(harness.folder, 'photos/closed'), 0o755);
  assert.equal(code, 1);
  assert.match(stderr, /photos\/closed: not allowed to read it/);
});

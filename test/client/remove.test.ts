import assert from 'node:assert/strict';
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import ava from 'ava';
import { pngHeader } from '../../control-plane/core/test/support/test-app.ts';
import { cutOutOf } from '../../control-plane/nodes/test/scripted-exchange.ts';
import { type MatteHeader, OutputFormat } from '../../proto/gen/matting/v1/matte_service.ts';
import { until } from '../support/processes.ts';
import { isNotTested } from '../support/skip.ts';
import { SmallDisk, skipWithoutMounts } from '../support/small-disk.ts';
import { picture, type Run, useRemoveCommand } from './remove-command.ts';

const test = ava.serial;

const TIMEOUT_MS = 120_000;
const command = await useRemoveCommand(test);
const { start, run, write, read, filesBelow, journal, charged } = command;

function writePhotos(count: number, pictureOf = picture): void {
  for (let number = 0; number < count; number += 1) {
    write(`photos/${number}.png`, pictureOf(number));
  }
}

/** Holds all pictures after the first `after`. */
function hold(after = 0) {
  const held = { count: 0, goOn: Promise.withResolvers<void>() };
  command.node.script = async exchange => {
    exchange.admit();
    const input = await exchange.receive();
    held.count += 1;
    if (held.count > after) await held.goOn.promise;
    exchange.answer(input);
  };
  return held;
}

test('killed at half of 200 pictures and begun again: 200 results, 200 credits', async t => {
  const pictures = Array.from({ length: 200 }, (_, number) => picture(number));
  for (const [number, bytes] of pictures.entries()) {
    write(`photos/shelf ${number % 7}/${number}.png`, bytes);
  }
  // Holds from the hundredth on, so that the kill meets some in every state.
  const held = hold(100);
  const args = ['photos', '--to', 'out', '--recursive', '--concurrency', '8'];
  const killed = start([...args, '--url', command.url]);
  await until(
    () => held.count > 100 && existsSync(path.join(command.folder, 'out/results.jsonl')),
    {
      timeoutMs: TIMEOUT_MS,
      what: 'half are cut out',
      detail: killed.stderr,
    },
  );
  await until(() => journal().length >= 100, {
    timeoutMs: TIMEOUT_MS,
    what: 'half are noted',
  });
  killed.child.kill('SIGKILL');
  await killed.ended;
  held.goOn.resolve();
  const half = journal().length;
  t.true(half >= 100 && half < 200, `${half} lines`);

  const again = await run(args);
  t.is(again.code, 0, again.stderr);
  t.regex(again.stdout.toString(), new RegExp(`${200 - half} cut out .* ${half} already there`));
  const results = filesBelow('out').filter(name => name !== 'results.jsonl');
  t.is(results.length, 200);
  for (const [number, bytes] of pictures.entries()) {
    t.deepEqual(read(`out/photos/shelf ${number % 7}/${number}.png`), cutOutOf(bytes));
  }
  t.is(await charged(), 200);
  const lines = journal();
  t.is(lines.length, 200);
  t.is(new Set(lines.map(({ job }) => job)).size, 200);
  t.true(lines.every(({ credits, error }) => credits === 1 && error === null));
  t.is((await run(args)).code, 0);
  t.is(await charged(), 200);
});

test('a journal whose last line is cut is mended', async t => {
  write('a.png', picture(7));
  write('out/results.jsonl', '{"file":"old"}\n{"file":"cut o');
  t.is((await run(['a.png', '--to', 'out'])).code, 0);
  t.deepEqual(
    journal().map(({ file }) => file),
    ['old', 'a.png'],
  );
});

test('a journal loses no whole line, whoever wrote it', async t => {
  write('a.png', picture(5));
  // Many programs write no newline after the last line.
  write('out/results.jsonl', '{"custom_id":"1"}\n{"custom_id":"2"}');
  t.is((await run(['a.png', '--to', 'out'])).code, 0);
  const [first, second, third] = journal();
  t.deepEqual([first, second, third?.output], [{ custom_id: '1' }, { custom_id: '2' }, 'a.png']);
});

test('a run without credits stops, and continues when there are some', async t => {
  command.caller = await command.replicas.createCaller(2);
  writePhotos(5);
  const args = ['photos', '--to', 'out', '--concurrency', '1'];
  const poor = await run(args);
  t.is(poor.code, 1);
  t.regex(poor.stderr, /the account has 2 credits; .* 5\n/);
  t.regex(poor.stderr, /stopped: INSUFFICIENT_CREDITS/);
  t.regex(poor.stdout.toString(), /2 cut out .* 1 failed, 2 not tried/);
  await command.replicas.stores.ledger.grant(command.caller.accountId, 10, 'more');
  const rich = await run(args);
  t.is(rich.code, 0, rich.stderr);
  t.is(await charged(), 5);
});

test('an option that one picture cannot have fails that picture, once another was made with it', async t => {
  // 9000 px wide: the second would exceed a frame's pixels.
  write('photos/1.png', Buffer.concat([pngHeader(100, 10), Buffer.from('first')]));
  write('photos/2.png', Buffer.concat([pngHeader(10, 10), Buffer.from('second')]));
  write('photos/3.png', Buffer.concat([pngHeader(100, 10), Buffer.from('third')]));
  const args = ['photos', '--to', 'out', '--output-width', '9000', '--concurrency', '1'];
  const { code, stderr, stdout } = await run(args);
  t.is(code, 1);
  t.regex(stderr, /2\.png: INVALID_PARAMETER: output_width/);
  t.notRegex(stderr, /stopped/);
  t.regex(stdout.toString(), /2 cut out .* 1 failed/);
});

test('an option that no picture can have is told once', async t => {
  writePhotos(8);
  const { code, stderr } = await run(['photos', '--to', 'out', '--background', 'no-colour']);
  t.not(code, 0);
  t.is(stderr.match(/\.png: INVALID_PARAMETER: background/g)?.length, 1, stderr);
});

test('a key that is wrong, and a service that is not there, are told at once', async t => {
  write('a.png', picture(8));
  const stranger = await run(['a.png', '--to', 'out'], 'mk_nobody');
  t.is(stranger.code, 77, stranger.stderr);
  t.regex(stranger.stderr, /INVALID_API_KEY/);
  const keyless = await run(['a.png', '--to', 'out'], '');
  t.is(keyless.code, 78, keyless.stderr);
  write('key', `${command.caller.token}\n`);
  const args = ['a.png', '--to', 'out', '--key-file', 'key'];
  const byFile = await run(args, '');
  t.is(byFile.code, 0, byFile.stderr);
});

test('an interrupt finishes what is under way; a second one ends it', async t => {
  writePhotos(20);
  const held = hold();
  const args = ['photos', '--to', 'out', '--concurrency', '4', '--url', command.url];
  const heldBy = (count: number, run: Run) =>
    until(() => held.count >= count, { timeoutMs: TIMEOUT_MS, what: 'held', detail: run.stderr });
  const once = start(args);
  await heldBy(4, once);
  once.child.kill('SIGINT');
  const said = () => once.stderr().includes('Ctrl-C again');
  await until(said, { timeoutMs: TIMEOUT_MS, what: 'the interrupt is met', detail: once.stderr });
  held.goOn.resolve();
  const { code, stdout } = await once.ended;
  t.is(code, 130);
  t.regex(stdout.toString(), /4 cut out .* 16 not tried/);
  t.is(filesBelow('out').length, 5);

  held.goOn = Promise.withResolvers();
  held.count = 0;
  const twice = start(args);
  await heldBy(4, twice);
  const interrupted = setInterval(() => twice.child.kill('SIGINT'), 1100);
  const { code: hurried } = await twice.ended;
  clearInterval(interrupted);
  t.is(hurried, 130);
  t.is(filesBelow('out').length, 5, 'nothing is left half written');
  held.goOn.resolve();
  const last = await run(['photos', '--to', 'out']);
  t.is(last.code, 0, last.stderr);
  t.is(await charged(), 20);
});

test.skipIf(isNotTested(skipWithoutMounts()))(
  'a disk that is full stops the run; with room it goes on and pays nothing twice',
  async t => {
    const disk = SmallDisk.mount('96k');
    try {
      const large = (number: number) => Buffer.concat([picture(number), Buffer.alloc(30_000)]);
      writePhotos(8, large);
      const args = ['photos', '--to', disk.directory, '--concurrency', '1'];
      const full = await run(args);
      t.is(full.code, 1);
      t.regex(full.stderr, /stopped: .*no space left/i);
      const files = readdirSync(disk.directory, { recursive: true });
      t.false(files.some(name => String(name).endsWith('.part')));
      disk.remount('size=4m');
      const roomy = await run(args);
      t.is(roomy.code, 0, roomy.stderr);
      t.is(await charged(), 8);
      const last = path.join(disk.directory, 'photos/7.png');
      t.deepEqual(readFileSync(last), cutOutOf(large(7)));
    } finally {
      disk.remove();
    }
  },
);

test('the same picture under two names is paid once, and its line says all', async t => {
  write('a.png', picture(1));
  write('b.jpg', picture(1));
  const args = ['a.png', 'b.jpg', '--to', 'out', '--concurrency', '1'];
  const { code, stderr } = await run(args);
  t.is(code, 0, stderr);
  t.is(await charged(), 1);
  const [first, second] = journal();
  assert.ok(first && second);
  t.deepEqual([first.file, second.file], ['a.png', 'b.jpg']);
  t.deepEqual([first.output, second.output], ['a.png', 'b.png']);
  t.is(first.job, second.job);
  t.regex(first.sha256 ?? '', /^[0-9a-f]{64}$/);
  t.is(first.size?.bytes, cutOutOf(picture(1)).length);
  // A run's name or other options make a new request.
  await run(['a.png', '--to', 'out', '--run', 'second']);
  await run(['a.png', '--to', 'out', '--format', 'webp']);
  t.is(await charged(), 3);
});

test('a model is named with each picture; one that is not offered is told with those that are', async t => {
  write('a.png', picture(1));
  const asked: string[] = [];
  command.node.script = exchange => {
    asked.push(exchange.header.plan);
    return exchange.cutOut();
  };
  const wrong = await run(['a.png', '--to', 'out', '--model', 'best']);
  t.is(wrong.code, 64);
  t.regex(wrong.stderr, /model best.*\n {2}standard: products, people\n/);
  t.is((await run(['a.png', '--to', 'out'])).code, 0);
  const chosen = await run(['a.png', '--to', 'out', '--model', 'standard']);
  t.is(chosen.code, 0, chosen.stderr);
  t.deepEqual(asked, ['', 'standard']);
  t.deepEqual(
    journal().map(({ error }) => error),
    [null, null],
  );
});

test('a file that cannot be cut out is named, and the others are done', async t => {
  write('photos/good.png', picture(2));
  write('photos/bad.png', picture(3));
  write('photos/text.png', 'no picture');
  write('photos/empty.png', '');
  write('photos/notes.txt', 'not looked at');
  write('photos/.hidden.png', picture(4));
  write('photos/below/deep.png', picture(5));
  symlinkSync('nowhere', path.join(command.folder, 'photos/dangling.png'));
  symlinkSync('.', path.join(command.folder, 'photos/loop'));
  command.node.script = async exchange => {
    exchange.admit();
    const input = await exchange.receive();
    if (input.equals(picture(3))) exchange.fail('PROCESSING_FAILED', { retryable: false });
    else exchange.answer(input);
  };
  const flat = await run(['photos', '--to', 'out']);
  t.is(flat.code, 1);
  for (const name of ['bad', 'text', 'empty', 'dangling']) {
    t.regex(flat.stderr, new RegExp(`photos/${name}\\.png: [A-Z_]+: `));
  }
  t.regex(flat.stdout.toString(), /2 other files \(photos\/loop, photos\/notes\.txt\) skipped/);
  t.regex(flat.stderr, /^matting: [45] of 5, .*photos\/\w+\.png$/m);
  t.regex(
    flat.stderr,
    /4 failed; 3 would fail again \(.+\); run the same command again to retry 1 of/,
  );
  t.deepEqual(filesBelow('out'), ['photos/good.png', 'results.jsonl']);
  const codes = new Map(journal().map(({ file, error }) => [file, error?.code]));
  t.is(codes.get('photos/bad.png'), 'PROCESSING_FAILED');
  t.is(codes.get('photos/text.png'), 'UNSUPPORTED_IMAGE_FORMAT');
  t.is(codes.get('photos/dangling.png'), 'ENOENT');
  await run(['photos/.', '--to', 'deep', '--recursive']);
  t.deepEqual(filesBelow('deep'), ['below/deep.png', 'good.png', 'results.jsonl']);
  t.is(await charged(), 2);
});

test('results that would take the same place are refused before any is paid', async t => {
  const names = ['a/x.png', 'b/x.png', 'a/x.webp', 'to/b/x.png'];
  for (const name of names) write(name, picture(name.length));
  const cases: [string[], RegExp][] = [
    [['a'], /a\/x\.png and a\/x\.webp would both become a\/x\.png; .*--full-names/],
    [['a/x.png', 'b/x.png'], /would both become x\.png/],
    [['a/x.png', '--to', 'a'], /overwrite .*--to: a\/x\.png/],
    [['to/b/x.png', 'b', '--to', 'to'], /overwrite .*--to: to\/b\/x\.png/],
    [['a', '--to', 'a'], /a is .*--to/],
    [['-', 'a', '--to', 'out'], /^matting: - /],
    [['b', '--format', 'jpeg'], /UNSUPPORTED_OUTPUT_FORMAT: .*background/],
    [['b', '--background', 'no colour'], /background must be/],
    [['b', '--scale', '5%'], /stopped: INVALID_PARAMETER: scale must be/],
    [['b', '--crop-margin', '1px'], /crop_margin needs crop/],
    [['b', '--format', 'gif'], /--format must be one of png, webp, avif, jxl, jpeg/],
    [['b', '--concurrency', '65'], /--concurrency must be .* 64/],
    [['b', '--give-up', 'soon'], /--give-up must be/],
    [['b', '--no-such-option'], /--no-such-option/],
    [['b', '--model'], /'--model' argument is ambiguous/],
    [['b', '--crop=1'], /--crop/],
    [[], /--help/],
    [['b', '--url', 'ftp://example.com'], /baseUrl must be http/],
  ];
  for (const [args, said] of cases) {
    const { code, stderr } = await run(args.includes('--to') ? args : [...args, '--to', 'out']);
    t.is(code, 64, stderr);
    t.regex(stderr, said);
  }
  t.is(await charged(), 0);
  const { code, stdout } = await run(['-h']);
  t.is(code, 0);
  t.regex(stdout.toString(), /^Usage: matting-remove \[options\].* --output-height <pixels> /s);
  const apart = await run(['a', 'b', 'a/x.png', '--to', 'out', '--full-names']);
  t.is(apart.code, 0, apart.stderr);
  const made = ['a/x.png.png', 'a/x.webp.png', 'b/x.png.png', 'results.jsonl', 'x.png.png'];
  t.deepEqual(filesBelow('out'), made);
  // Results inside the source folder are not read.
  const inside = await run(['a', '--to', 'a/out', '--full-names', '--recursive']);
  t.is(inside.code, 0, inside.stderr);
  t.deepEqual(filesBelow('a/out'), ['a/x.png.png', 'a/x.webp.png', 'results.jsonl']);
});

test('a name is as long as names may be, and no link of another is written through', async t => {
  const name = `${'n'.repeat(251)}.png`;
  for (const photo of [name, 'a.png']) write(photo, picture(7));
  write('precious', 'not ours');
  mkdirSync(path.join(command.folder, 'out'));
  const link = path.join(command.folder, `out/.a.png.${process.pid}.part`);
  symlinkSync('../precious', link);
  const { code, stderr } = await run([name, 'a.png', '--to', 'out']);
  t.is(code, 0, stderr);
  t.is(read('precious').toString(), 'not ours');
  for (const photo of [name, 'a.png']) t.deepEqual(read(`out/${photo}`), cutOutOf(picture(7)));
});

test('names of files do nothing to a terminal', async t => {
  write('in/\u001b[2J\u009b2J.png', 'no picture');
  write('in/\u001b[2J.txt', 'not looked at');
  const { code, stderr, stdout } = await run(['in', '--to', 'out']);
  t.is(code, 1);
  t.regex(stderr, /in\/\?\[2J\?2J\.png: UNSUPPORTED_IMAGE_FORMAT/);
  const gone = await run(['\u001b]0;title\u0007', '--to', 'out']);
  t.is(gone.code, 66);
  t.regex(gone.stderr, /^matting: \?\]0;title\?: no such file$/m);
  const all = stdout + stderr + gone.stderr;
  for (const control of ['\u001b', '\u009b']) t.false(all.includes(control));
});

test('existing results are left alone with --skip-existing', async t => {
  write('a.png', picture(6));
  write('out/a.png', 'made by hand');
  write('out/.a.png.999999999.part', 'left by a kill');
  t.is((await run(['a.png', '--to', 'out', '--skip-existing'])).code, 0);
  t.is(read('out/a.png').toString(), 'made by hand');
  t.is(await charged(), 0);
  t.is((await run(['a.png', '--to', 'out'])).code, 0);
  t.deepEqual(read('out/a.png'), cutOutOf(picture(6)));
  t.deepEqual(filesBelow('out'), ['a.png', 'results.jsonl']);
});

test('options of the cut-outs reach the node, and make another request', async t => {
  const asked: MatteHeader[] = [];
  const finishing = await command.replicas.addNode({
    info: { outputFormats: [OutputFormat.OUTPUT_FORMAT_JPEG] },
    script: async exchange => {
      asked.push(exchange.header);
      const inputBox = { left: 1, top: 0, width: 2, height: 3 };
      const seen = { inputBox, resultBox: inputBox, share: 0.25 };
      const subject = { ...seen, cutOff: true, unsure: true };
      await exchange.cutOut({ inputWidth: 4, inputHeight: 3, subject });
    },
  });
  try {
    write('a.png', picture(20));
    const wishes = ['--format', 'jpg', '--background', 'white', '--crop', '--crop-margin', '5%'];
    const args = ['a.png', '--to', 'out', ...wishes, '--output-width', '100'];
    const { code, stderr, stdout } = await run(args);
    t.is(code, 0, stderr);
    t.regex(stdout.toString(), /1 cut out .*, 1 with warnings \(results\.jsonl\)/);
    t.deepEqual(filesBelow('out'), ['a.jpg', 'results.jsonl']);
    const [header] = asked;
    assert.ok(header);
    t.is(header.outputFormat, OutputFormat.OUTPUT_FORMAT_JPEG);
    t.is(header.finishing?.outputWidth, 100);
    t.deepEqual(header.finishing?.background, { $case: 'backgroundRgba', value: 0xffffffff });
    t.truthy(header.finishing?.crop);
    const [line] = journal();
    t.deepEqual(line?.subject, { left: 1, top: 0, width: 2, height: 3, share: 0.25 });
    t.deepEqual(line?.warnings, ['subject_unsure', 'subject_cut_off']);
    t.regex(stderr, /a\.png: subject_unsure: .+; subject_cut_off: /);
    t.is((await run([...args, '--scale', '85%'])).code, 0);
    t.is(await charged(), 2, 'another wish is another request');
  } finally {
    await finishing.down();
  }
});

test('a picture without a subject fails, is not paid and does not stop the run, where that is asked', async t => {
  let pictures = 0;
  const blind = await command.replicas.addNode({
    info: { outputFormats: [OutputFormat.OUTPUT_FORMAT_JPEG] },
    script: async exchange => {
      const inputBox = { left: 0, top: 0, width: 4, height: 3 };
      const seen = { inputBox, resultBox: inputBox, share: 1, cutOff: false, unsure: false };
      pictures += 1;
      const subject = pictures === 1 ? undefined : seen;
      await exchange.cutOut({ inputWidth: 4, inputHeight: 3, subject });
    },
  });
  try {
    write('a.png', picture(21));
    write('b.png', picture(2));
    const wishes = ['--format', 'jpeg', '--background', 'white', '--concurrency', '1'];
    const args = ['a.png', 'b.png', '--to', 'out', ...wishes];
    const { code, stderr } = await run([...args, '--fail-without-subject']);
    t.is(code, 1);
    t.regex(stderr, /a\.png: NO_SUBJECT/);
    t.deepEqual(filesBelow('out'), ['b.jpg', 'results.jsonl']);
    t.is(await charged(), 1);
    t.is((await run(args)).code, 0);
    t.is(await charged(), 3, 'without the option each is another request');
  } finally {
    await blind.down();
  }
});

test('a picture goes from standard input to standard output', async t => {
  const piped = start(['-', '--url', command.url]);
  piped.child.stdin?.end(picture(9));
  const { code, stdout, stderr } = await piped.ended;
  t.deepEqual([code, stderr], [0, '']);
  t.deepEqual(stdout, cutOutOf(picture(9)));
  const bad = start(['-', '--url', command.url]);
  bad.child.stdin?.end('no picture');
  const refused = await bad.ended;
  t.deepEqual([refused.code, refused.stdout.length], [1, 0]);
  t.regex(refused.stderr, /UNSUPPORTED_IMAGE_FORMAT/);
  const empty = start(['-', '--url', command.url]);
  empty.child.stdin?.end();
  t.is((await empty.ended).code, 65);
});

// Root reads everything.
test.skipIf(process.getuid?.() === 0)('a folder that cannot be read is named', async t => {
  write('photos/a.png', picture(10));
  write('photos/closed/b.png', picture(11));
  chmodSync(path.join(command.folder, 'photos/closed'), 0);
  const { code, stderr } = await run(['photos', '--to', 'out', '--recursive']);
  chmodSync(path.join(command.folder, 'photos/closed'), 0o755);
  t.is(code, 1);
  t.regex(stderr, /photos\/closed: permission denied/);
});

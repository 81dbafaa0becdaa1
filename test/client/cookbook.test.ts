/** Runs each recipe as printed. Needs: curl, removebg. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import ava from 'ava';
import { pngHeader } from '../../control-plane/core/test/support/test-app.ts';
import { type LoopbackSource, openSource } from '../../control-plane/http/test/loopback-source.ts';
import { Replicas } from '../../control-plane/test/programs.ts';
import { findFreePorts } from '../../program/ports/free-ports.ts';
import { CAPABILITIES } from '../../proto/contract/capabilities.ts';
import { SHADOW } from '../../proto/contract/finishing.ts';
import { finishingFromProto } from '../../proto/contract/finishing-wire.ts';
import { type MatteHeader, OutputFormat } from '../../proto/gen/matting/v1/matte_service.ts';
import { ROOT } from '../running-service.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const test = ava.serial;

const FOLDER = await temporaryFolder({ teardown: test.after.always });
const { OUTPUT_FORMAT_JPEG: JPEG, OUTPUT_FORMAT_WEBP: WEBP, OUTPUT_FORMAT_PNG: PNG } = OutputFormat;

const RECIPES = new Map(
  readFileSync(path.join(ROOT, 'docs/cookbook.md'), 'utf8')
    .split(/^## /m)
    .slice(1)
    .map(section => {
      const [title = ''] = section.split('\n');
      return [title, /^```sh\n([\s\S]*?)^```$/m.exec(section)?.[1] ?? ''];
    }),
);

let replicas: Replicas;
let bucket: LoopbackSource;
let url: string;
let env: Record<string, string>;
const headers: MatteHeader[] = [];

test.before(async () => {
  const [port] = await findFreePorts(1);
  url = `http://127.0.0.1:${port}`;
  replicas = await Replicas.open('sqlite', {
    replicas: 1,
    env: {
      MATTING_PORT: String(port),
      MATTING_BASE_URL: url,
      MATTING_ALLOW_PRIVATE_ADDRESSES: 'true',
    },
  });
  bucket = await openSource((request, response) => {
    request.resume();
    response.end(Buffer.concat([pngHeader(4, 3), Buffer.from(`${request.url}`)]));
  });
  await replicas.addNode({
    imagesMax: 16,
    info: { capabilities: [...CAPABILITIES], outputFormats: [JPEG, WEBP, PNG] },
    script: async exchange => {
      headers.push(exchange.header);
      await exchange.cutOut({
        inputWidth: 4,
        inputHeight: 3,
        subject: {
          inputBox: { left: 1, top: 0, width: 2, height: 3 },
          resultBox: { left: 1, top: 0, width: 2, height: 3 },
          share: 0.5,
          cutOff: false,
          unsure: false,
        },
      });
    },
  });
  const tools = path.join(FOLDER, 'bin');
  mkdirSync(path.join(FOLDER, 'photos/shelf'), { recursive: true });
  mkdirSync(tools);
  const command = `exec "${process.execPath}" "${path.join(ROOT, 'bin/matting.ts')}" remove "$@"`;
  const aws = `echo "${bucket.url}/$(basename "$3")?signature=s"`;
  for (const [name, line] of Object.entries({ 'matting-remove': command, aws })) {
    writeFileSync(path.join(tools, name), `#!/bin/sh\n${line}\n`);
    chmodSync(path.join(tools, name), 0o755);
  }
  for (const [index, name] of ['photo.jpg', 'photos/a.png', 'photos/shelf/b.png'].entries()) {
    writeFileSync(path.join(FOLDER, name), pngHeader(20 + index, 30));
  }
  writeFileSync(path.join(FOLDER, 'names.txt'), 'one.jpg\ntwo.jpg\n');
  const { token } = await replicas.createCaller(1000);
  env = {
    PATH: `${tools}:${process.env.PATH}`,
    BASE: url,
    MATTING_API_KEY: token,
    CALLBACK_SECRET: `whsec_${Buffer.alloc(32, 7).toString('base64')}`,
  };
});
test.beforeEach(() => {
  headers.length = 0;
});
test.after.always(async () => {
  await replicas?.close();
  await bucket?.[Symbol.asyncDispose]();
});

async function run(title: string): Promise<string> {
  const code = RECIPES.get(title);
  assert.ok(code, `no recipe: ${title}`);
  const child = spawn('sh', ['-euc', code], {
    cwd: FOLDER,
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', text => (output += text));
  const exit = await new Promise(resolve => child.once('close', resolve));
  assert.equal(exit, 0, output);
  return output;
}

/** Late jobs of a recipe that does not wait are no JPEGs. */
function asked(format: OutputFormat = JPEG) {
  return headers
    .filter(({ outputFormat }) => outputFormat === format)
    .map(({ outputFormat, finishing }) => {
      assert.ok(finishing);
      return { outputFormat, ...finishingFromProto(finishing) };
    });
}

const NONE = { px: 0 };
const CROP = { top: NONE, right: NONE, bottom: NONE, left: NONE };
const WHITE = { kind: 'colour', rgba: 0xffffffff };
const MAIN = {
  outputFormat: JPEG,
  crop: CROP,
  scalePercent: 85,
  outputWidth: 2000,
  outputHeight: 2000,
  background: WHITE,
  enlarge: false,
};

test('the main picture of a marketplace', async t => {
  await run('The main picture of a marketplace');
  t.deepEqual(asked() as unknown[], [MAIN]);
  t.true(existsSync(path.join(FOLDER, 'main.jpg')));
});

test('a square with a shadow', async t => {
  await run('A square for a shop, with a shadow');
  t.like(asked(WEBP)[0], {
    outputFormat: WEBP,
    aspectRatio: { width: 1, height: 1 },
    shadow: { ...SHADOW.absent, opacity: 40 },
    quality: 85,
  });
});

test('an upload with a webhook', async t => {
  const job = JSON.parse(await run('Uploads of your users, with a webhook'));
  t.is(job.callback.url, 'https://shop.example.com/hooks/matting');
  t.is(job.reference, 'upload-815');
});

test('a folder overnight, and the same command again', async t => {
  await run('40,000 photos overnight');
  t.deepEqual(asked() as unknown[], [MAIN, MAIN]);
  t.true(existsSync(path.join(FOLDER, 'cutouts/photos/shelf/b.jpg')));
  t.regex(await run('40,000 photos overnight'), /2 .*there/);
  t.is(asked().length, 2, 'nothing is made twice');
});

test('photos in a bucket', async t => {
  t.regex(await run('Photos in a bucket'), /2 cut out, 0 failed/);
  t.is(asked(WEBP).length, 2);
  const [, , two] = readdirSync(path.join(FOLDER, 'bucket')).sort();
  t.regex(two ?? '', /^two-[0-9a-f]{12}\.webp$/);
  await run('Photos in a bucket');
  t.is(asked(WEBP).length, 2, 'nothing is made twice');
});

test('the call of remove.bg', async t => {
  await run('Leave remove.bg in fifteen minutes');
  t.like(asked(PNG)[0], { outputFormat: PNG, shadow: { ...SHADOW.absent, opacity: 60 } });
  t.notRegex(readFileSync(path.join(FOLDER, 'headers.txt'), 'utf8'), /x-ignored-fields/i);
});

/** `test/foreign/main.ts` runs generated clients. */
const RUN_ELSEWHERE = 'A client for your language';

test('every recipe of the page is run here', t => {
  t.true(RECIPES.delete(RUN_ELSEWHERE));
  t.is(RECIPES.size, 6);
});

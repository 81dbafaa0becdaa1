// Prints `ok` or throws. Arguments: address, key, folder.
import { MattingClient, MattingError } from 'matting-client';
import { readImage, saveImage } from 'matting-client/files';

const args = globalThis.Deno?.args ?? process.argv.slice(2);
const [baseUrl, apiKey, folder] = args;
const matting = new MattingClient({ baseUrl, apiKey, answerMsMax: 5000 });

function require(holds, what) {
  if (!holds) throw new Error(what);
}

function same(a, b) {
  return a.length === b.length && a.every((byte, index) => byte === b[index]);
}

const picture = await readImage(`${folder}/picture.png`);
const expected = await readImage(`${folder}/expected`);
const { credits } = await matting.account();
require(credits.available > 0, 'credits');

// The proxy loses the first answer, cuts the second, and passes the rest.
const retries = [];
const cutOut = await matting.cutOut(
  { image: picture, output_format: 'webp' },
  { onRetry: ({ error }) => retries.push(error.code) },
);
require(same(cutOut.bytes, expected), 'the bytes of the cut-out');
require(cutOut.contentType === 'image/webp', cutOut.contentType);
// Deno itself repeats a request if a reused connection breaks.
const told = new Set(retries);
require(told.size === 1 && told.has('NO_ANSWER') && retries.length <= 2, `retries: ${retries}`);

const key = { idempotencyKey: `one picture ${Math.random()}` };
const first = await matting.run({ image: new Blob([picture]).stream() }, key);
const callback = { callback_url: 'https://example.com/hooks', callback_secret: 'a'.repeat(24) };
const second = await matting.run({ image: new Blob([picture]) }, key);
require(first.job_id === second.job_id, 'a stream and a blob are the same request');
const form = await matting.run({ image: picture, ...callback });
require(form.callback.url === callback.callback_url, 'a form');
const submitted = await matting.submit({ image: picture });
const waited = await matting.wait(submitted);
const { bytes } = await matting.download(waited);
require((await saveImage(`${folder}/saved`, [bytes])) === expected.length, 'a saved file');

const refused = await matting.cutOut({ image: new Uint8Array(9) }).catch(error => error);
require(refused instanceof MattingError, `${refused}`);
require(refused.code === 'UNSUPPORTED_IMAGE_FORMAT' && refused.status === 400, refused.code);
const gone = new MattingClient({ baseUrl: 'http://127.0.0.1:9', apiKey });
const unanswered = await gone.account({ giveUpMs: 300 }).catch(error => error);
require(unanswered.code === 'NO_ANSWER' && unanswered.retryable, `${unanswered}`);
const ending = new AbortController();
const reason = new Error('not wanted');
const aborted = gone.account({ signal: ending.signal }).catch(error => error);
setTimeout(() => ending.abort(reason), 50);
require((await aborted) === reason, 'the reason of the abort');
console.log('ok');

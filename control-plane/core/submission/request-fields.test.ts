import assert from 'node:assert/strict';
import { OVERLONG, type TextValue } from '@matting/http/body-fields.ts';
import { ContractError, type ErrorCode } from '@matting/proto/contract/errors.ts';
import ava from 'ava';
import { type FingerprintedRequest, fingerprintOf, idempotencyKeyHash } from './fingerprint.ts';
import { type MattingFields, requireMattingRequest, type TextField } from './matting-request.ts';

const test = ava.serial;

const POLICY = {
  fetchPorts: [80, 443],
  allowPrivateAddresses: false,
  allowHttpCallbacks: false,
};
const URL_TEXT = 'https://images.example.com/photo.jpg';
const SECRET = 's'.repeat(24);

type Sent = Partial<Record<TextField | 'image_base64', TextValue>>;

function fields({ image_base64, ...texts }: Sent): MattingFields {
  return {
    texts: new Map(Object.entries(texts) as [TextField, TextValue][]),
    imageGiven: image_base64 !== undefined,
  };
}

function refused(sent: Sent, policy = POLICY): ContractError {
  try {
    requireMattingRequest(fields(sent), policy);
  } catch (error) {
    assert.ok(error instanceof ContractError, String(error));
    return error;
  }
  assert.fail(`accepted: ${JSON.stringify(sent)}`);
}

const pair = { callback_url: 'https://hooks.example.com/x', callback_secret: SECRET };

function bodiesWith(field: TextField, values: readonly TextValue[], rest: Sent = {}) {
  const named = values.map((value): [string, Sent] => [
    `${field} ${value === OVERLONG ? 'too long' : JSON.stringify(value)}`,
    { image_base64: '', ...rest, [field]: value },
  ]);
  return Object.fromEntries(named);
}

const REFUSED: readonly (readonly [ErrorCode, field: string, Record<string, Sent>])[] = [
  [
    'INVALID_IMAGE_SOURCE',
    'image_url',
    {
      'neither source': {},
      both: { image_url: URL_TEXT, image_base64: 'AA' },
      'both, empty': { image_url: '', image_base64: '' },
      'an empty URL': { image_url: '' },
      'a URL too long': { image_url: OVERLONG },
      // urls.test.ts has the other forbidden URLs.
      'a private address': { image_url: 'http://10.0.0.1/' },
      'another port': { image_url: 'http://example.com:22/' },
    },
  ],
  [
    'UNSUPPORTED_OUTPUT_FORMAT',
    'output_format',
    bodiesWith('output_format', ['gif', '', 'jpeg', 'image/png', OVERLONG]),
  ],
  [
    'INVALID_PARAMETER',
    'reference',
    {
      ...bodiesWith('reference', ['', 'a\u0000', 'a\nb', 'a\u0085', 'a\u2028b', '\u202eabc']),
      ...bodiesWith('reference', ['\ud800', 'a'.repeat(129), '😀'.repeat(129), OVERLONG]),
    },
  ],
  [
    'INVALID_CALLBACK',
    'callback_url',
    {
      'a lone secret': { image_base64: '', callback_secret: SECRET },
      'an empty callback': { image_base64: '', callback_url: '', callback_secret: '' },
      ...bodiesWith(
        'callback_url',
        [
          OVERLONG,
          `https://h.example.com/${'a'.repeat(2027)}`,
          ...['http://hooks.example.com', '/hook', 'hooks.example.com/x', 'https://'],
          ...['ftp://hooks.example.com/', 'https://hooks.example.com:65536/'],
          ...['https://hooks.exa\u0000mple.com/', 'https://hooks.example.com/\n'],
          ...['https://a@hooks.example.com', 'https://:b@hooks.example.com/'],
          ...['https://@hooks.example.com/', 'HTTPS:\\\\@hooks.example.com/'],
          ...['https:a@hooks.example.com/', 'https://hooks.example.com/#'],
          'https://hooks.example.com/#part',
        ],
        pair,
      ),
    },
  ],
  [
    'INVALID_CALLBACK',
    'callback_secret',
    {
      'a lone callback_url': { image_base64: '', callback_url: pair.callback_url },
      ...bodiesWith(
        'callback_secret',
        ['s'.repeat(23), 's'.repeat(129), 'é'.repeat(24), `\t${'s'.repeat(24)}`, OVERLONG],
        pair,
      ),
    },
  ],
];

for (const [code, field, bodies] of REFUSED) {
  for (const [what, sent] of Object.entries(bodies)) {
    test(`fields › refuses ${what}`, t => {
      const error = refused(sent);
      t.deepEqual([error.code, error.fieldErrors[0]?.field], [code, field]);
    });
  }
}

test('fields › a callback over http only where the operator allows it', t => {
  const sent = { image_base64: '', ...pair, callback_url: 'http://hooks.example.com/' };
  t.regex(refused(sent).message, /must be https\. .*MATTING_ALLOW_HTTP_CALLBACKS/);
  const allowed = requireMattingRequest(fields(sent), { ...POLICY, allowHttpCallbacks: true });
  t.is(allowed.callback?.url, 'http://hooks.example.com/');
});

test('fields › a pair that is right is kept as it was sent, address and port unjudged', t => {
  for (const callback of [
    { url: 'https://hooks.example.com:8443/a b?x=a@b:c', secret: ' !~'.repeat(8) },
    { url: `https://h.example.com/${'a'.repeat(2026)}`, secret: 's'.repeat(128) },
    { url: 'https://127.0.0.1/', secret: SECRET },
  ]) {
    const sent = { callback_url: callback.url, callback_secret: callback.secret };
    const request = requireMattingRequest(fields({ image_base64: '', ...sent }), POLICY);
    t.deepEqual(request.callback, callback);
  }
});

test('fields › a reference is kept in NFC, and as long as its characters are', t => {
  const referenceOf = (reference: string) =>
    requireMattingRequest(fields({ image_base64: '', reference }), POLICY).reference;
  t.is(referenceOf('e\u0301'), '\u00e9');
  // 256 code points that NFC makes 128.
  t.is(referenceOf('e\u0301'.repeat(128)), '\u00e9'.repeat(128));
  for (const same of ['😀'.repeat(128), ' a ', '<i>\'&"</i>', '注文 4711']) {
    t.is(referenceOf(same), same);
  }
});

test('fields › formats in whatever case, png where absent', t => {
  const formatOf = (sent: Sent) =>
    requireMattingRequest(fields({ image_base64: '', ...sent }), POLICY).outputFormat;
  t.is(formatOf({}), 'png');
  t.is(formatOf({ output_format: 'PNG' }), 'png');
  t.is(formatOf({ output_format: 'WebP' }), 'webp');
  t.is(formatOf({ output_format: 'avif' }), 'avif');
  t.is(formatOf({ output_format: 'JXL' }), 'jxl');
});

test('fields › the URL is kept as it was sent', t => {
  const request = requireMattingRequest(fields({ image_url: URL_TEXT }), POLICY);
  t.is(request.imageUrl, URL_TEXT);
});

test('fields › a background by its URL is judged as image_url is, in its own name', t => {
  const urls: TextValue[] = [
    '',
    'ftp://a.example/',
    'http://127.0.0.1/',
    'https://a:b@c.example/',
    OVERLONG,
  ];
  for (const background_url of urls) {
    const { code, fieldErrors } = refused({ image_base64: '', background_url });
    t.deepEqual([code, fieldErrors[0]?.field], ['INVALID_PARAMETER', 'background_url']);
  }
  const request = requireMattingRequest(
    fields({ image_base64: '', background_url: URL_TEXT }),
    POLICY,
  );
  t.is(request.backgroundUrl, URL_TEXT);
  t.deepEqual(request.finishing, { background: { kind: 'picture' } });
});

test('fields › a text of finishing that is longer than every rule allows is refused by its name', t => {
  for (const field of ['background', 'crop_margin', 'output_width'] as const) {
    const { code, fieldErrors } = refused({ image_base64: '', [field]: OVERLONG });
    t.deepEqual([code, fieldErrors[0]?.field], ['INVALID_PARAMETER', field]);
  }
});

const base: FingerprintedRequest = {
  source: { url: 'https://a.example/x' },
  outputFormat: 'png',
  callback: undefined,
};

const WHITE = { background: { kind: 'colour', rgba: 0xffffffff } } as const;
const picture = { background: { kind: 'picture' } } as const;
const FINISHED: readonly FingerprintedRequest[] = [
  { ...base, channels: 'alpha', finishing: {} },
  { ...base, finishing: WHITE },
  { ...base, finishing: { background: { kind: 'colour', rgba: 0xfffffffe } } },
  { ...base, finishing: { ...WHITE, scalePercent: 85 } },
  { ...base, finishing: { ...WHITE, scalePercent: 85, position: 'original' } },
  { ...base, finishing: { outputWidth: 10 } },
  { ...base, finishing: { outputHeight: 10 } },
  { ...base, finishing: picture, background: { url: 'https://a.example/b' } },
  { ...base, finishing: picture, background: { url: 'https://a.example/c' } },
  { ...base, finishing: picture, background: { sha256: 'https://a.example/c' } },
];

test('fields › every field that counts changes the fingerprint', t => {
  const requests: FingerprintedRequest[] = [
    base,
    { ...base, outputFormat: 'webp' },
    { ...base, model: 'isnet' },
    { ...base, model: 'best' },
    { ...base, source: { url: 'https://a.example/y' } },
    { ...base, source: { imageSha256: 'https://a.example/x' } },
    { ...base, callback: { url: 'https://b.example', secret: 's'.repeat(24) } },
    { ...base, callback: { url: 'https://b.example', secret: 't'.repeat(24) } },
    { ...base, callback: { url: 'https://c.example', secret: 's'.repeat(24) } },
    ...FINISHED,
  ];
  t.is(new Set(requests.map(fingerprintOf)).size, requests.length);
  for (const request of requests) t.regex(fingerprintOf(request), /^[0-9a-f]{64}$/);
  const otherOrder = {
    scalePercent: 85,
    background: { rgba: 0xffffffff, kind: 'colour' },
  } as const;
  t.is(
    fingerprintOf({ ...base, finishing: otherOrder }),
    fingerprintOf({ ...base, finishing: { ...WHITE, scalePercent: 85 } }),
    'and not how it is written',
  );
});

test('fields › no value can pass for another field', t => {
  const url = 'https://a.example/x\noutput_format:4:webp';
  const forged = { ...base, source: { url } };
  t.not(fingerprintOf(forged), fingerprintOf({ ...base, outputFormat: 'webp' }));
});

/** Recorded by releases without finishing: their keys must still replay. */
const RECORDED: readonly [FingerprintedRequest, string][] = [
  [base, 'e2045bf61f4f7cf39a240103e095388b6161d03f30dc64a14cccff9d2123e17c'],
  [
    { ...base, source: { imageSha256: 'ab'.repeat(32) } },
    '2f2f65bd231277235a8f76f68efb0db3dfe0fe6c4c47c020b2565ab9610d77b4',
  ],
  [
    { ...base, source: { imageSha256: 'ab'.repeat(32) }, outputFormat: 'jxl' },
    'b601962b68cc54b78d3e6bc74fefb26cbadcabacb6b27fbb11032fb2f5c57035',
  ],
  [
    {
      ...base,
      outputFormat: 'webp',
      callback: { url: 'https://b.example', secret: 's'.repeat(24) },
    },
    'da466a1643c73716b42807c2a29d87bd03126204b08356f3a7a884199253b088',
  ],
];

test('fields › equal requests have one fingerprint, stable over releases', t => {
  t.is(fingerprintOf({ ...base }), fingerprintOf(base));
  for (const [request, recorded] of RECORDED) {
    t.is(fingerprintOf(request), recorded);
    const nothingAsked = { channels: 'rgba', finishing: undefined, background: undefined } as const;
    t.is(fingerprintOf({ ...request, ...nothingAsked }), recorded);
    t.is(fingerprintOf({ ...request, finishing: {}, model: undefined }), recorded);
    t.is(fingerprintOf({ ...request, noSubject: undefined }), recorded);
    t.not(fingerprintOf({ ...request, noSubject: 'fail' }), recorded);
  }
});

test('fields › a key is stored as its SHA-256', t => {
  t.is(
    idempotencyKeyHash('abc'),
    'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad',
  );
});

/** Signatures come from the Standard Webhooks library. */
import { randomBytes } from 'node:crypto';
import test from 'ava';
import { Webhook } from 'standardwebhooks';
import { verifyWebhook, WebhookError } from '../../client/src/webhooks.ts';

const SECRET = `whsec_${randomBytes(32).toString('base64')}`;
const BODY = '{"type":"matting.job.succeeded","job_id":"6f1d2c1e","data":{"name":"Müller"}}';

function signed(body = BODY, { secret = SECRET, offS = 0 } = {}) {
  const at = new Date(Date.now() + 1000 * offS);
  const signature = new Webhook(secret).sign('msg_6f1d2c1e', at, body);
  return {
    'webhook-id': 'msg_6f1d2c1e',
    'webhook-timestamp': String(Math.floor(at.getTime() / 1000)),
    'webhook-signature': signature,
  };
}

test('reads a notification, as text or bytes, by the headers of Node or of fetch', t => {
  const event = JSON.parse(BODY);
  t.deepEqual(verifyWebhook(BODY, signed(), SECRET), event);
  t.deepEqual(verifyWebhook(Buffer.from(BODY), new Headers(signed()), SECRET), event);
});

test('takes one of several signatures, and a secret that is text', t => {
  const headers = signed();
  const both = `v1a,xyz v1,${Buffer.alloc(32).toString('base64')} ${headers['webhook-signature']}`;
  t.is(verifyWebhook(BODY, { ...headers, 'webhook-signature': both }, SECRET).job_id, '6f1d2c1e');
  const text = 'a raw callback secret, kept';
  const base64 = `whsec_${Buffer.from(text).toString('base64')}`;
  t.is(verifyWebhook(BODY, signed(BODY, { secret: base64 }), text).job_id, '6f1d2c1e');
});

const FORGED: Readonly<Record<string, readonly [body: string, headers: Record<string, string>]>> = {
  'another body': [BODY.replace('6f1d', '6f1e'), signed()],
  'another id': [BODY, { ...signed(), 'webhook-id': 'msg_other' }],
  'another secret': [BODY, signed(BODY, { secret: `whsec_${randomBytes(32).toString('base64')}` })],
  'a later timestamp': [
    BODY,
    { ...signed(), 'webhook-timestamp': `${Math.floor(Date.now() / 1000) + 9}` },
  ],
  'an old notification': [BODY, signed(BODY, { offS: -301 })],
  'one from the future': [BODY, signed(BODY, { offS: 330 })],
  'no timestamp': [BODY, { ...signed(), 'webhook-timestamp': '' }],
  'no headers': [BODY, {}],
  'a signature of another version': [
    BODY,
    { ...signed(), 'webhook-signature': signed()['webhook-signature'].replace('v1,', 'v2,') },
  ],
  'a cut signature': [
    BODY,
    { ...signed(), 'webhook-signature': signed()['webhook-signature'].slice(0, -8) },
  ],
};

for (const [what, [body, headers]] of Object.entries(FORGED)) {
  test(`refuses ${what}`, t => {
    t.throws(() => verifyWebhook(body, headers, SECRET), { instanceOf: WebhookError });
  });
}

test('says that the secret is missing', t => {
  t.throws(() => verifyWebhook(BODY, signed(), ''), { instanceOf: TypeError, message: /variable/ });
});

/**
 * Tells the service of a payment or a refund: what stands between a payment provider and
 * POST /account/payments/notifications. Node 24, no package:
 *
 *   PAYMENT_SECRET=... node tell-payment.ts https://matting.example paid <order> <payment> 5000 CNY
 *   PAYMENT_SECRET=... node tell-payment.ts https://matting.example refunded <order> <refund> 1000 CNY
 *
 * Sums are whole numbers of the smallest unit: 5000 is 50 yuan. Said twice, it counts once, so
 * repeat it until the answer is 200: at 429, 503 and where none came. Any other answer is for a
 * person: it names what does not fit the order.
 */
import { createHmac } from 'node:crypto';

const [baseUrl = '', what = '', orderId, reference, amount, currency] = process.argv.slice(2);
const secret = process.env.PAYMENT_SECRET ?? '';
// whsec_ and Base64 stand for bytes, any other text for itself.
const key = secret.startsWith('whsec_')
  ? Buffer.from(secret.slice('whsec_'.length), 'base64')
  : Buffer.from(secret, 'utf8');
if (key.length < 24) throw new Error('set PAYMENT_SECRET to MATTING_PAYMENT_SECRET of the service');
if (what !== 'paid' && what !== 'refunded') throw new Error('say paid or refunded');

const body = JSON.stringify({
  type: `order.${what}`,
  timestamp: new Date().toISOString(),
  data: {
    order_id: orderId,
    [what === 'paid' ? 'payment_id' : 'refund_id']: reference,
    amount: Number(amount),
    currency,
  },
});
const id = `${what}-${reference}`;
const timestamp = String(Math.floor(Date.now() / 1000));
// Over the bytes that are sent: sign and send the same text.
const digest = createHmac('sha256', key).update(`${id}.${timestamp}.${body}`).digest('base64');

const answer = await fetch(`${baseUrl}/account/payments/notifications`, {
  method: 'POST',
  headers: {
    'content-type': 'application/json',
    'webhook-id': id,
    'webhook-timestamp': timestamp,
    'webhook-signature': `v1,${digest}`,
  },
  body,
});
console.log(answer.status, await answer.text());
process.exitCode = answer.status === 200 ? 0 : 1;

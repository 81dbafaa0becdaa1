/**
 * POST /account/payments/notifications: what a payment provider tells, for programs. It knows no
 * session and no key: the signature over the body's bytes is the proof.
 */
import type { FastifyInstance } from 'fastify';
import { ContractError } from '#contract/errors.ts';
import { bodyChunks, wantBody } from '../../http/bodies.ts';
import type { ReceivePayment } from './receive-payment.ts';

const NOTIFICATIONS_PATH = '/account/payments/notifications';
/** One is some 300 bytes. Anybody may send as much before the signature is checked. */
export const NOTIFICATION_BYTES_MAX = 8 * 1024;
/** From the headers to the last byte. */
const NOTIFICATION_MS_MAX = 5000;

export function registerPaymentRoutes(app: FastifyInstance, receivePayment: ReceivePayment): void {
  app.post(NOTIFICATIONS_PATH, async (request, reply) => {
    if (Number(request.headers['content-length'] ?? 0) > NOTIFICATION_BYTES_MAX) throw tooLarge();
    if (request.headers['content-encoding'] !== undefined) {
      const detail = 'Content-Encoding is not supported: the signature is over the bytes as sent';
      throw new ContractError('UNSUPPORTED_MEDIA_TYPE', detail);
    }
    wantBody(request, reply);
    const chunks: Buffer[] = [];
    let receivedBytes = 0;
    // Its own bound of bytes is for pictures, and speaks of them.
    const bounds = { bytesMax: Number.POSITIVE_INFINITY, wholeMsMax: NOTIFICATION_MS_MAX };
    for await (const chunk of bodyChunks(request.raw, bounds)) {
      receivedBytes += chunk.length;
      if (receivedBytes > NOTIFICATION_BYTES_MAX) throw tooLarge();
      chunks.push(chunk);
    }
    const received = await receivePayment.receive(request.headers, Buffer.concat(chunks));
    const { order_id: orderId, outcome } = received;
    // The operator owes money back, or looks for what went wrong.
    const level = outcome === 'paid_again' || outcome === 'waiting' ? 'warn' : 'info';
    request.log[level]({ orderId, outcome }, 'a payment was told of');
    return reply.header('cache-control', 'no-store').send(received);
  });
}

function tooLarge(): ContractError {
  const detail = `a notification has at most ${NOTIFICATION_BYTES_MAX} bytes`;
  return new ContractError('INVALID_REQUEST', detail);
}

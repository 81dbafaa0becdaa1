/** The server's side of AWS Signature Version 4, by header or presigned; as strict as S3. */
import { createHash, createHmac, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { ObjectStoreError } from './store-error.ts';

/** A client's clock may be off by so much. */
const SKEW_MS_MAX = 15 * 60_000;
/** Seven days. */
const EXPIRES_S_MAX = 604_800;
const ALGORITHM = 'AWS4-HMAC-SHA256';

export interface Identity {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly region: string;
}

interface Claim {
  readonly credential: string;
  readonly signedHeaders: string;
  readonly signature: string;
  readonly date: string;
  readonly payloadHash: string;
  /** Undefined: not a presigned URL. */
  readonly expiresS?: number;
}

/** Gives the hash that the body must have, or a STREAMING- mark. @throws ObjectStoreError */
export function verifySignature(
  request: IncomingMessage,
  url: URL,
  identity: Identity,
  nowMs: number,
): string {
  const claim = url.searchParams.has('X-Amz-Signature') ? presigned(url) : authorized(request);
  const [accessKeyId, day = '', region, service, end] = claim.credential.split('/');
  if (accessKeyId !== identity.accessKeyId) throw new ObjectStoreError(403, 'InvalidAccessKeyId');
  if (region !== identity.region || service !== 's3' || end !== 'aws4_request') {
    throw new ObjectStoreError(400, 'AuthorizationHeaderMalformed');
  }
  requireTime(claim, nowMs);
  const signed = claim.signedHeaders.split(';');
  requireSigned(request, signed);
  const canonical = canonicalRequest(request, url, signed, claim.payloadHash);
  const scope = `${day}/${region}/s3/aws4_request`;
  const toSign = [ALGORITHM, claim.date, scope, sha256(canonical)].join('\n');
  const parts = [day, region, 's3', 'aws4_request'];
  const key = parts.reduce<string | Buffer>(hmac, `AWS4${identity.secretAccessKey}`);
  const expected = hmac(key, toSign).toString('hex');
  if (!equal(expected, claim.signature)) throw new ObjectStoreError(403, 'SignatureDoesNotMatch');
  return claim.payloadHash;
}

function presigned({ searchParams }: URL): Claim {
  const value = (name: string) => searchParams.get(name) ?? '';
  const expiresS = Number(value('X-Amz-Expires'));
  const known = value('X-Amz-Algorithm') === ALGORITHM;
  if (!known || !Number.isInteger(expiresS) || expiresS < 1 || expiresS > EXPIRES_S_MAX) {
    throw new ObjectStoreError(400, 'AuthorizationQueryParametersError');
  }
  return {
    credential: value('X-Amz-Credential'),
    signedHeaders: value('X-Amz-SignedHeaders'),
    signature: value('X-Amz-Signature'),
    date: value('X-Amz-Date'),
    payloadHash: searchParams.get('X-Amz-Content-Sha256') ?? 'UNSIGNED-PAYLOAD',
    expiresS,
  };
}

function authorized({ headers }: IncomingMessage): Claim {
  const { authorization } = headers;
  if (authorization === undefined) throw new ObjectStoreError(403, 'AccessDenied');
  const fields = new Map(
    authorization
      .slice(ALGORITHM.length)
      .split(',')
      .map((field): [string, string] => {
        const [name = '', ...value] = field.trim().split('=');
        return [name, value.join('=')];
      }),
  );
  const hash = headers['x-amz-content-sha256'];
  const date = headers['x-amz-date'];
  if (!authorization.startsWith(`${ALGORITHM} `) || typeof date !== 'string') {
    throw new ObjectStoreError(400, 'AuthorizationHeaderMalformed');
  }
  if (typeof hash !== 'string') throw new ObjectStoreError(400, 'MissingSecurityHeader');
  return {
    credential: fields.get('Credential') ?? '',
    signedHeaders: fields.get('SignedHeaders') ?? '',
    signature: fields.get('Signature') ?? '',
    date,
    payloadHash: hash,
  };
}

function requireTime({ date, expiresS }: Claim, nowMs: number): void {
  const at = /^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z$/.exec(date);
  if (at === null) throw new ObjectStoreError(403, 'AccessDenied');
  const signedAtMs = Date.parse(
    date.replace(at[0], `${at[1]}-${at[2]}-${at[3]}T${at[4]}:${at[5]}:${at[6]}Z`),
  );
  if (expiresS === undefined) {
    if (Math.abs(nowMs - signedAtMs) > SKEW_MS_MAX) {
      throw new ObjectStoreError(403, 'RequestTimeTooSkewed');
    }
    return;
  }
  const early = signedAtMs - nowMs > SKEW_MS_MAX;
  const late = nowMs >= signedAtMs + expiresS * 1000;
  if (early || late) throw new ObjectStoreError(403, 'AccessDenied');
}

function requireSigned({ headers }: IncomingMessage, signed: readonly string[]): void {
  const must = Object.keys(headers).filter(name => name.startsWith('x-amz-'));
  if (![...must, 'host'].every(name => signed.includes(name))) {
    throw new ObjectStoreError(403, 'AccessDenied');
  }
}

function canonicalRequest(
  request: IncomingMessage,
  url: URL,
  signed: readonly string[],
  payloadHash: string,
): string {
  const path = url.pathname.split('/').map(part => encode(decodeURIComponent(part)));
  const query = [...url.searchParams]
    .filter(([name]) => name !== 'X-Amz-Signature')
    .map(([name, value]): [string, string] => [encode(name), encode(value)])
    .sort(([a, av], [b, bv]) => (a === b ? order(av, bv) : order(a, b)))
    .map(pair => pair.join('='));
  const headers = signed.map(name => {
    const value = request.headers[name] ?? '';
    return `${name}:${String(value).trim().replace(/\s+/g, ' ')}\n`;
  });
  return [
    request.method,
    path.join('/'),
    query.join('&'),
    headers.join(''),
    signed.join(';'),
    payloadHash,
  ].join('\n');
}

function order(a: string, b: string): number {
  return a < b ? -1 : Number(a > b);
}

/** RFC 3986: everything but letters, digits and -._~ in capital hexadecimal. */
function encode(text: string): string {
  const escaped = (character: string) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`;
  return encodeURIComponent(text).replace(/[!'()*]/g, escaped);
}

function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

function hmac(key: string | Buffer, text: string): Buffer {
  return createHmac('sha256', key).update(text).digest();
}

function equal(a: string, b: string): boolean {
  return a.length === b.length && timingSafeEqual(Buffer.from(a), Buffer.from(b));
}

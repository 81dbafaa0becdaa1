/** The browser behind a request, and what it keeps from a sign-in on. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { SESSION_MS } from '../../../services/people/sessions.ts';
import type { Browser, Entered } from '../../../services/people/sign-in.ts';
import { clearCookie, createSecret, isSecret, readCookie, setCookie } from '../session/cookies.ts';
import { csrfTokenOf } from '../session/csrf.ts';
import { maybeSignedIn } from '../session/signed-in.ts';

const DAY_S = 86_400;
/** A browser that a person comes back with within this time is known. */
const KNOWN_S = 180 * DAY_S;

export function browserOf(request: FastifyRequest): Browser {
  const secret = readCookie(request, 'session');
  return {
    address: request.ip,
    agent: request.headers['user-agent'] ?? '',
    sessionSecret: secret !== undefined && isSecret(secret) ? secret : undefined,
    known: readCookie(request, 'device'),
  };
}

/** A session's secret is new with every sign-in: one that was planted before opens nothing. */
export function letIn(reply: FastifyReply, { secret, known }: Entered): void {
  setCookie(reply, 'session', secret, SESSION_MS / 1000);
  if (known !== undefined) keepKnown(reply, known);
  clearCookie(reply, 'visitor');
}

export function keepKnown(reply: FastifyReply, known: string): void {
  setCookie(reply, 'device', known, KNOWN_S);
}

/** For a form that strangers see too: the token of their session, or of the cookie of visitors. */
export function csrfOfVisitor(request: FastifyRequest, reply: FastifyReply): string {
  const signedIn = maybeSignedIn(request);
  if (signedIn !== undefined) return signedIn.csrf;
  const given = readCookie(request, 'visitor');
  const secret = given !== undefined && isSecret(given) ? given : createSecret();
  if (secret !== given) setCookie(reply, 'visitor', secret);
  return csrfTokenOf(secret);
}

/** Whole minutes, at least one. */
export function minutesOf(waitMs: number): number {
  return Math.max(1, Math.ceil(waitMs / 60_000));
}

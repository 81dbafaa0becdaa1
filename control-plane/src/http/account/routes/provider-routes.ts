/**
 * The way to the identity provider and back. It begins with a link, since a form of our pages may
 * lead to no other host; what the browser has to come back with is in a cookie that no other site
 * can set.
 */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import {
  OpenIdError,
  type OpenIdFlow,
  type ProviderSignIn,
} from '../../../services/people/provider-sign-in.ts';
import { wordsOf } from '../page/page-request.ts';
import { ACCOUNT_PATH } from '../page/render-page.ts';
import { clearCookie, readCookie, setCookie } from '../session/cookies.ts';
import { isFromElsewhere, returnPathOf, SIGN_IN_PATH } from '../session/guard.ts';
import { PageError } from '../session/page-error.ts';
import { fill } from '../words/words.ts';
import { browserOf, letIn, minutesOf } from './browser.ts';
import { renderSignIn } from './sign-in-routes.ts';

/** For signing in there, a second factor included. */
const FLOW_S = 600;

interface KeptFlow extends OpenIdFlow {
  readonly to?: string;
}

export function registerProviderRoutes(account: FastifyInstance, provider: ProviderSignIn): void {
  account.get('/sign-in/provider', { config: { public: true } }, async (request, reply) => {
    const { to } = request.query as Record<string, unknown>;
    const back = returnPathOf(typeof to === 'string' ? to : undefined);
    // Whom the provider knows would come in without a click of theirs, by a link of anybody's.
    if (isFromElsewhere(request)) {
      const query = back === undefined ? '' : `?to=${encodeURIComponent(back)}`;
      return reply.redirect(`${SIGN_IN_PATH}${query}`, 303);
    }
    const { url, flow } = await orProviderDown(request, provider.begin(browserOf(request)));
    const kept: KeptFlow = back === undefined ? flow : { ...flow, to: back };
    setCookie(reply, 'flow', Buffer.from(JSON.stringify(kept)).toString('base64url'), FLOW_S);
    return reply.redirect(url, 303);
  });
  account.get('/sign-in/provider/back', { config: { public: true } }, (request, reply) =>
    comeBack(request, reply, provider),
  );
}

async function comeBack(
  request: FastifyRequest,
  reply: FastifyReply,
  provider: ProviderSignIn,
): Promise<FastifyReply> {
  const flow = flowOf(readCookie(request, 'flow'));
  // Once, whatever comes of it.
  clearCookie(reply, 'flow');
  if (flow === undefined) throw new PageError('staleForm');
  const at = request.url.indexOf('?');
  const query = at === -1 ? '' : request.url.slice(at);
  const coming = provider.finish(query, flow, browserOf(request));
  const outcome = await orProviderDown(request, coming);
  request.log.info({ outcome: outcome.kind, address: request.ip }, 'sign-in by the provider');
  if (outcome.kind === 'signed-in') {
    letIn(reply, outcome);
    return reply.redirect(returnPathOf(flow.to) ?? ACCOUNT_PATH, 303);
  }
  const { signIn } = wordsOf(request);
  const again = { to: returnPathOf(flow.to), provider };
  if (outcome.kind === 'throttled') {
    reply.header('retry-after', String(Math.ceil(outcome.waitMs / 1000)));
    const problem = fill(signIn.throttled, { minutes: minutesOf(outcome.waitMs) });
    return renderSignIn(request, reply, { ...again, problem, status: 429 });
  }
  return renderSignIn(request, reply, { ...again, problem: signIn.noAccount, status: 422 });
}

/** @throws PageError providerDown: the log has why */
async function orProviderDown<T>({ log }: FastifyRequest, work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    if (!(error instanceof OpenIdError)) throw error;
    log.warn({ err: error.cause }, error.message);
    throw new PageError('providerDown', { cause: error });
  }
}

/** Undefined: none, or not as we set it. */
function flowOf(cookie: string | undefined): KeptFlow | undefined {
  if (cookie === undefined) return undefined;
  try {
    const flow = JSON.parse(Buffer.from(cookie, 'base64url').toString()) as Partial<KeptFlow>;
    const { state, nonce, verifier, to } = flow;
    const isWhole = [state, nonce, verifier].every(one => typeof one === 'string' && one !== '');
    if (!isWhole || (to !== undefined && typeof to !== 'string')) return undefined;
    return flow as KeptFlow;
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

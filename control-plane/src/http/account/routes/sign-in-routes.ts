/** Sign-in by mail and password, and sign-out. */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Profile } from '../../../services/people/profile.ts';
import type { ProviderSignIn } from '../../../services/people/provider-sign-in.ts';
import type { SignIn } from '../../../services/people/sign-in.ts';
import { wordsOf } from '../page/page-request.ts';
import { ACCOUNT_PATH, renderPage } from '../page/render-page.ts';
import { clearCookie } from '../session/cookies.ts';
import { returnPathOf, SIGN_IN_PATH } from '../session/guard.ts';
import { formOf, maybeSignedIn, signedInOf } from '../session/signed-in.ts';
import { signInForm } from '../views/people/sign-in-view.ts';
import { fill } from '../words/words.ts';
import { browserOf, csrfOfVisitor, letIn, minutesOf } from './browser.ts';

export interface SignInRouteServices {
  readonly signIn: SignIn;
  readonly profile: Profile;
  /** Undefined: people sign in by passwords alone. */
  readonly provider: ProviderSignIn | undefined;
}

/** Longer passwords were never set. */
const PASSWORD_LENGTH_MAX = 1024;

export function registerSignInRoutes(
  account: FastifyInstance,
  { signIn, profile, provider }: SignInRouteServices,
): void {
  account.get('/sign-in', { config: { public: true } }, (request, reply) => {
    const { to } = request.query as Record<string, unknown>;
    const back = returnPathOf(typeof to === 'string' ? to : undefined);
    if (maybeSignedIn(request) !== undefined) return reply.redirect(back ?? ACCOUNT_PATH, 303);
    return renderSignIn(request, reply, { to: back, provider });
  });
  account.post('/sign-in', { config: { public: true } }, async (request, reply) => {
    const form = formOf(request);
    const mail = form.text('mail');
    const password = form.text('password');
    const to = returnPathOf(form.text('to'));
    const again = { to, mail, provider };
    const { signIn: words } = wordsOf(request);
    const outcome =
      password.length > PASSWORD_LENGTH_MAX
        ? ({ kind: 'refused' } as const)
        : await signIn.withPassword({ mail, password }, browserOf(request));
    request.log.info({ outcome: outcome.kind, address: request.ip }, 'sign-in');
    switch (outcome.kind) {
      case 'signed-in':
        letIn(reply, outcome);
        return reply.redirect(to ?? ACCOUNT_PATH, 303);
      case 'refused':
        return renderSignIn(request, reply, { ...again, problem: words.wrong, status: 422 });
      case 'no-account':
        return renderSignIn(request, reply, { ...again, problem: words.noAccount, status: 422 });
      case 'throttled': {
        const problem = fill(words.throttled, { minutes: minutesOf(outcome.waitMs) });
        reply.header('retry-after', String(Math.ceil(outcome.waitMs / 1000)));
        return renderSignIn(request, reply, { ...again, problem, status: 429 });
      }
    }
  });
  account.post('/sign-out', { config: { permission: 'self' } }, async (request, reply) => {
    const signedIn = signedInOf(request);
    await profile.endSession(signedIn, signedIn.sessionId);
    clearCookie(reply, 'session');
    return reply.redirect(`${SIGN_IN_PATH}?said=signedOut`, 303);
  });
}

/** The form, and the way to the identity provider where there is one. */
export function renderSignIn(
  request: FastifyRequest,
  reply: FastifyReply,
  of: {
    readonly to: string | undefined;
    readonly mail?: string;
    readonly problem?: string;
    readonly status?: number;
    readonly provider: Pick<ProviderSignIn, 'name'> | undefined;
  },
): FastifyReply {
  const words = wordsOf(request);
  const { status = 200, provider, ...props } = of;
  const query = of.to === undefined ? '' : `?to=${encodeURIComponent(of.to)}`;
  const href = `${SIGN_IN_PATH}/provider${query}`;
  return renderPage(request, reply, {
    title: words.signIn.title,
    status,
    said: words.signIn.said,
    main: signInForm({
      words,
      csrf: csrfOfVisitor(request, reply),
      provider: provider && { name: provider.name, href },
      ...props,
    }),
  });
}

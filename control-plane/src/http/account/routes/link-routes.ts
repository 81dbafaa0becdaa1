/**
 * Invitations and sign-in links. Opening one shows what it would do; only the button's POST uses it
 * up.
 */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { mailKeyOf } from '../../../domain/account/mail-address.ts';
import type { AcceptOutcome, FoundLink, Links } from '../../../services/people/links.ts';
import { wordsOf } from '../page/page-request.ts';
import { ACCOUNT_PATH, renderPage } from '../page/render-page.ts';
import { isSecret } from '../session/cookies.ts';
import { SIGN_IN_PATH } from '../session/guard.ts';
import { formOf, maybeSignedIn } from '../session/signed-in.ts';
import { notice } from '../views/components/marks.ts';
import {
  type InvitationProps,
  invitationForm,
  signInLinkForm,
} from '../views/people/sign-in-view.ts';
import { browserOf, csrfOfVisitor, letIn } from './browser.ts';

type LinkRequest = FastifyRequest<{ Params: { token: string } }>;

export function registerLinkRoutes(account: FastifyInstance, links: Links): void {
  const find = async ({ params }: LinkRequest, purpose: 'invitation' | 'sign-in') =>
    isSecret(params.token) ? links.find(params.token, purpose) : undefined;

  account.get<{ Params: { token: string } }>(
    '/links/:token',
    { config: { public: true } },
    async (request, reply) => {
      const link = await find(request, 'sign-in');
      if (link === undefined) return renderUnusable(request, reply, 'sign-in');
      const words = wordsOf(request);
      const csrf = csrfOfVisitor(request, reply);
      const action = `${ACCOUNT_PATH}/links/${request.params.token}`;
      const main = signInLinkForm({ ...link, words, csrf, action });
      return renderPage(request, reply, { title: words.signIn.title, main });
    },
  );
  account.post<{ Params: { token: string } }>(
    '/links/:token',
    { config: { public: true } },
    async (request, reply) => {
      const outcome = await links.signIn(request.params.token, browserOf(request));
      request.log.info({ outcome: outcome.kind, address: request.ip }, 'sign-in by a link');
      if (outcome.kind !== 'signed-in') return renderUnusable(request, reply, 'sign-in');
      letIn(reply, outcome);
      return reply.redirect(ACCOUNT_PATH, 303);
    },
  );
  account.get<{ Params: { token: string } }>(
    '/invitations/:token',
    { config: { public: true } },
    async (request, reply) => {
      const link = await find(request, 'invitation');
      if (link === undefined) return renderUnusable(request, reply, 'invitation');
      return renderInvitation(request, reply, link, stateOf(request, link));
    },
  );
  account.post<{ Params: { token: string } }>(
    '/invitations/:token',
    { config: { public: true } },
    async (request, reply) => {
      const { token } = request.params;
      const by = { ...browserOf(request), userId: maybeSignedIn(request)?.userId };
      const password = formOf(request).text('password');
      const outcome = await links.acceptInvitation(token, password, by);
      request.log.info({ outcome: outcome.kind, address: request.ip }, 'invitation');
      if (outcome.kind === 'signed-in') {
        letIn(reply, outcome);
        return reply.redirect(ACCOUNT_PATH, 303);
      }
      return renderRefused(request, reply, await find(request, 'invitation'), outcome);
    },
  );
}

/** What the person has to do before the invitation is theirs. */
function stateOf(request: LinkRequest, link: FoundLink): InvitationProps['state'] {
  const signedIn = maybeSignedIn(request);
  if (signedIn !== undefined) {
    const isTheirs = mailKeyOf(signedIn.mail) === mailKeyOf(link.mail);
    return isTheirs ? { kind: 'signed-in' } : { kind: 'another-person', mail: signedIn.mail };
  }
  if (!link.personExists) return { kind: 'new' };
  const to = encodeURIComponent(`${ACCOUNT_PATH}/invitations/${request.params.token}`);
  return { kind: 'sign-in-first', href: `${SIGN_IN_PATH}?to=${to}` };
}

function renderInvitation(
  request: LinkRequest,
  reply: FastifyReply,
  link: FoundLink,
  state: InvitationProps['state'],
  status = 200,
): FastifyReply {
  const words = wordsOf(request);
  return renderPage(request, reply, {
    title: words.invitation.title,
    status,
    main: invitationForm({
      ...link,
      words,
      csrf: csrfOfVisitor(request, reply),
      action: `${ACCOUNT_PATH}/invitations/${request.params.token}`,
      roleName: words.roles[link.role],
      state,
    }),
  });
}

function renderRefused(
  request: LinkRequest,
  reply: FastifyReply,
  link: FoundLink | undefined,
  outcome: Exclude<AcceptOutcome, { readonly kind: 'signed-in' }>,
): FastifyReply {
  if (link === undefined) return renderUnusable(request, reply, 'invitation');
  const words = wordsOf(request);
  if (outcome.kind === 'account-full') {
    const main = notice('bad', words.invitation.full);
    return renderPage(request, reply, { title: words.invitation.title, status: 422, main });
  }
  if (outcome.kind === 'bad-password') {
    const error = words.profile.faults[outcome.fault];
    return renderInvitation(request, reply, link, { kind: 'new', error }, 422);
  }
  return renderInvitation(request, reply, link, stateOf(request, link), 422);
}

function renderUnusable(
  request: FastifyRequest,
  reply: FastifyReply,
  purpose: 'invitation' | 'sign-in',
): FastifyReply {
  const { invitation, signIn } = wordsOf(request);
  const isInvitation = purpose === 'invitation';
  return renderPage(request, reply, {
    title: isInvitation ? invitation.title : signIn.title,
    status: 404,
    main: notice('warning', isInvitation ? invitation.unknown : signIn.linkUnknown),
  });
}

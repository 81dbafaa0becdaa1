/** Sign-in, and the links that lead into an account. */
import type { VNode } from 'preact';
import { fill, type Words } from '../../words/words.ts';
import { button, linkButton } from '../components/buttons.ts';
import { postForm, textField } from '../components/fields.ts';
import { notice } from '../components/marks.ts';
import { html } from '../html.ts';

export interface SignInProps {
  readonly words: Words;
  readonly csrf: string;
  /** Where it leads afterwards. */
  readonly to: string | undefined;
  /** What was typed before. */
  readonly mail?: string | undefined;
  /** The identity provider, where there is one. */
  readonly provider?: { readonly name: string; readonly href: string } | undefined;
  /** Why nobody was let in. */
  readonly problem?: string | undefined;
}

export function signInForm({ words, csrf, to, mail = '', provider, problem }: SignInProps): VNode {
  const { signIn } = words;
  return html`<div class="stack">
    ${problem === undefined ? null : notice('bad', problem)}
    ${postForm(
      { action: '/account/sign-in', csrf, ...(to === undefined ? {} : { hidden: { to } }) },
      textField({
        name: 'mail',
        label: signIn.mail,
        type: 'email',
        value: mail,
        required: true,
        autocomplete: 'username',
        maxlength: 254,
        autofocus: mail === '',
      }),
      textField({
        name: 'password',
        label: signIn.password,
        type: 'password',
        required: true,
        autocomplete: 'current-password',
        maxlength: 256,
        autofocus: mail !== '',
      }),
      button({ label: signIn.submit }),
    )}
    ${
      provider === undefined
        ? null
        : html`<p>${linkButton({
            href: provider.href,
            label: fill(signIn.byProvider, { name: provider.name }),
          })}</p>`
    }
    <p class="hint">${signIn.forgotten}</p>
  </div>`;
}

export interface LinkProps {
  readonly words: Words;
  readonly csrf: string;
  /** Path of the link itself. */
  readonly action: string;
  readonly mail: string;
  readonly accountName: string;
}

/** Opening a link uses nothing up: previews of mails open links too. */
export function signInLinkForm({ words, csrf, action, mail, accountName }: LinkProps): VNode {
  const { signIn } = words;
  return html`<div class="stack">
    <p>${fill(signIn.linkLead, { mail, account: accountName })}</p>
    ${postForm({ action, csrf }, button({ label: signIn.submit }))}
  </div>`;
}

export interface InvitationProps extends LinkProps {
  readonly roleName: string;
  readonly state:
    | { readonly kind: 'new'; readonly error?: string | undefined }
    | { readonly kind: 'signed-in' }
    | { readonly kind: 'sign-in-first'; readonly href: string }
    | { readonly kind: 'another-person'; readonly mail: string };
}

export function invitationForm(props: InvitationProps): VNode {
  const { words, mail, accountName: account, roleName: role } = props;
  return html`<div class="stack">
    <p>${fill(words.invitation.lead, { mail, account, role })}</p>
    ${invitationStep(props)}
  </div>`;
}

function invitationStep({ words, csrf, action, mail, state }: InvitationProps): VNode {
  const { invitation } = words;
  switch (state.kind) {
    case 'another-person':
      return notice('warning', fill(invitation.anotherPerson, { mail: state.mail }));
    case 'sign-in-first':
      return html`<p>${fill(invitation.signInFirst, { mail })}</p>
        <p>${linkButton({ href: state.href, label: words.signIn.submit, kind: 'primary' })}</p>`;
    case 'signed-in':
      return postForm({ action, csrf }, button({ label: invitation.accept }));
    case 'new':
      return postForm(
        { action, csrf },
        // So that a password manager knows whose it is.
        html`<input type="email" name="mail" value=${mail} autocomplete="username" readonly hidden />`,
        newPasswordField(words, { name: 'password', error: state.error, autofocus: true }),
        button({ label: invitation.setPassword }),
      );
  }
}

export function newPasswordField(
  { profile }: Words,
  of: { readonly name: string; readonly error?: string | undefined; readonly autofocus?: boolean },
): VNode {
  return textField({
    name: of.name,
    label: profile.next,
    type: 'password',
    hint: profile.nextHint,
    error: of.error,
    required: true,
    autocomplete: 'new-password',
    minlength: 12,
    maxlength: 256,
    autofocus: of.autofocus ?? false,
  });
}

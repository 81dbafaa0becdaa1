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
  /** Who is signed in and is not the one invited; undefined: nobody. */
  readonly anotherPerson: string | undefined;
  /** As the one invited. */
  readonly isSignedIn: boolean;
  /** Why it was not accepted. */
  readonly error: string | undefined;
}

export function invitationForm(props: InvitationProps): VNode {
  const { words, mail, accountName: account, roleName: role, anotherPerson } = props;
  const { invitation } = words;
  return html`<div class="stack">
    <p>${fill(invitation.lead, { mail, account, role })}</p>
    ${
      anotherPerson === undefined
        ? passwordToAccept(props)
        : notice('warning', fill(invitation.anotherPerson, { mail: anotherPerson }))
    }
  </div>`;
}

function passwordToAccept({ words, csrf, action, mail, isSignedIn, error }: InvitationProps) {
  const { invitation, signIn } = words;
  return postForm(
    { action, csrf },
    // So that a password manager knows whose it is.
    html`<input type="email" name="mail" value=${mail} autocomplete="username" readonly hidden />`,
    textField({
      name: 'password',
      label: signIn.password,
      type: 'password',
      hint: isSignedIn ? invitation.confirmHint : invitation.passwordHint,
      error,
      required: true,
      autocomplete: isSignedIn ? 'current-password' : 'new-password',
      maxlength: 256,
      autofocus: true,
    }),
    button({ label: invitation.accept }),
  );
}

export function newPasswordField(
  { profile }: Words,
  of: { readonly name: string; readonly error?: string | undefined },
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
  });
}

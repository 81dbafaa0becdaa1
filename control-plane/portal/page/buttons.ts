import type { VNode } from 'preact';
import { type Child, html } from './html.ts';
import { icon } from './icons.ts';

export type ButtonKind = 'primary' | 'secondary' | 'danger' | 'quiet';

interface ButtonProps {
  readonly label: Child;
  readonly kind?: ButtonKind;
  /** With a value, the form tells which of its buttons was pressed. */
  readonly name?: string;
  readonly value?: string;
  /** The browser asks this before it sends the form. Without scripts it sends at once. */
  readonly confirm?: string;
  readonly disabled?: boolean;
  /** What the button does, if the label does not tell: `Revoke key Shop`. */
  readonly describe?: string;
}

export function button(props: ButtonProps): VNode {
  const { label, kind = 'primary', name, value, confirm, disabled = false, describe } = props;
  return html`<button type="submit" class=${`button ${kind}`} name=${name} value=${value}
    data-confirm=${confirm} disabled=${disabled} aria-label=${nameOf(label, describe)}>${label}</button>`;
}

export function actions(...children: Child[]): VNode {
  return html`<div class="actions">${children}</div>`;
}

/** The accessible name must contain the label, for people who speak to the browser (WCAG 2.5.3). */
function nameOf(label: Child, describe: string | undefined): string | undefined {
  if (describe === undefined || typeof label !== 'string') return describe;
  return describe.toLowerCase().includes(label.toLowerCase()) ? describe : `${label}: ${describe}`;
}

export function linkButton({
  href,
  label,
  kind = 'secondary',
  download = false,
}: {
  readonly href: string;
  readonly label: Child;
  readonly kind?: ButtonKind;
  readonly download?: boolean;
}): VNode {
  return html`<a class=${`button ${kind}`} href=${href} download=${download || undefined}>${label}</a>`;
}

export function copyButton(
  text: string,
  words: { readonly copy: string; readonly copied: string },
): VNode {
  return html`<button type="button" class="button quiet copy" data-copy=${text}
    data-copied=${words.copied} hidden>${icon('copy')}<span aria-live="polite">${words.copy}</span></button>`;
}

/** For texts that people copy more often than they read: an id, a key's prefix. */
export function copyable(
  text: string,
  words: { readonly copy: string; readonly copied: string },
): VNode {
  return html`<span class="copied"><code>${text}</code>${copyButton(text, words)}</span>`;
}

export function codeBlock(
  text: string,
  words: { readonly copy: string; readonly copied: string },
  label?: string,
): VNode {
  return html`<div class="code">
    <pre tabindex="0" aria-label=${label} role=${label === undefined ? undefined : 'region'}><code>${text}</code></pre>
    ${copyButton(text, words)}
  </div>`;
}

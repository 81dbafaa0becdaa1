/** Small things that say a state: badges, notices, what stands where a list is empty. */
import type { VNode } from 'preact';
import { type Child, html } from '../html.ts';
import { icon } from '../icons.ts';

export type Tone = 'neutral' | 'good' | 'warning' | 'bad' | 'accent';

/** One or two words about a row: its state. */
export function badge(label: string, tone: Tone = 'neutral'): VNode {
  return html`<span class=${`badge ${tone}`}>${label}</span>`;
}

/** A message about the whole page; a bad one is read out at once. */
export function notice(tone: Tone, ...children: Child[]): VNode {
  const name =
    tone === 'good' ? 'check' : tone === 'bad' || tone === 'warning' ? 'warning' : 'info';
  return html`<div class=${`notice ${tone}`} role=${tone === 'bad' ? 'alert' : 'status'}>
    ${icon(name)}<div>${children}</div>
  </div>`;
}

/** Where a list has no rows: what would be here, and how to begin. */
export function emptyState(props: {
  readonly title: string;
  readonly text?: Child;
  readonly action?: Child;
}): VNode {
  const { title, text, action } = props;
  return html`<div class="empty">
    <p class="empty-title">${title}</p>
    ${text ? html`<p>${text}</p>` : null}
    ${action ? html`<div class="actions">${action}</div>` : null}
  </div>`;
}

/** A time that machines and people read. @param text as a formatter wrote it, in UTC */
export function time(instantMs: number, text: string): VNode {
  return html`<time datetime=${new Date(instantMs).toISOString()}>${text}</time>`;
}

/** A text of a machine that people copy: commands, secrets, addresses. */
export function codeBlock(
  text: string,
  words: { readonly copy: string; readonly copied: string },
  label?: string,
): VNode {
  return html`<div class="code">
    <pre tabindex="0" aria-label=${label} role=${label === undefined ? undefined : 'region'}><code>${text}</code></pre>
    <button type="button" class="button quiet copy" data-copy=${text} data-copied=${words.copied}
      hidden>${icon('copy')}<span aria-live="polite">${words.copy}</span></button>
  </div>`;
}

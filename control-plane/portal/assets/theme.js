/**
 * Applies the theme that the person chose in this browser, before the page is drawn, so that it
 * does not flash.
 */
// @ts-check

const { dataset } = document.documentElement;
dataset.theme = localStorage.getItem('theme') ?? 'system';

addEventListener('DOMContentLoaded', () => {
  const select = document.querySelector('.theme select');
  if (!(select instanceof HTMLSelectElement) || !(select.parentElement instanceof HTMLElement)) {
    return;
  }
  select.value = dataset.theme ?? 'system';
  select.parentElement.hidden = false;
  select.addEventListener('change', () => {
    dataset.theme = select.value;
    localStorage.setItem('theme', select.value);
  });
});

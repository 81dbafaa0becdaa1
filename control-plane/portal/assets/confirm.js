/** A button with data-confirm asks before its form is sent. */
// @ts-check

document.addEventListener('submit', event => {
  if (!(event instanceof SubmitEvent)) return;
  const question = event.submitter?.dataset.confirm;
  if (question !== undefined && !confirm(question)) event.preventDefault();
});

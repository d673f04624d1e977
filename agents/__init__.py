"""The LangGraph loop: propose, judge, reflect, distil."""
